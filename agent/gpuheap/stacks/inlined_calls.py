# SPDX-License-Identifier: Apache-2.0
"""Where a function calls what the compiler has inlined into it.

The line program of code that was inlined names the lines of the inlined function, often in a header. A frame is the
function that has it, so its line is where that one calls: of the outermost inlined call that the address is in.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from .debug_entries import Abbreviation, Attribute, Tag, Value, read, skip
from .debug_units import Range, Unit
from .dwarf import Malformed, unsigned_leb
from .frame_rules import Exhausted
from .line_programs import Row

MAX_UNIT_BYTES: Final = 8 << 20
MAX_LINE: Final = (1 << 32) - 1
MAX_FUNCTIONS: Final = 100_000
FUNCTION_BYTES: Final = 24
_FUNCTION: Final = frozenset({Attribute.LOW, Attribute.HIGH, Attribute.RANGES, Attribute.SIBLING})
_CALL: Final = _FUNCTION | {Attribute.CALL_FILE, Attribute.CALL_LINE}
_SIBLING: Final = frozenset({Attribute.SIBLING})
_BLOCKS: Final = frozenset({Tag.LEXICAL_BLOCK, Tag.TRY_BLOCK, Tag.CATCH_BLOCK})
_ROOTS: Final = frozenset({Tag.COMPILE_UNIT, Tag.PARTIAL_UNIT})
_HOLD_FUNCTIONS: Final = _ROOTS | {Tag.NAMESPACE}


class InlinedCalls:
    """Of one unit: an index of its functions, each by its place among the unit's entries."""

    def __init__(self, unit: Unit) -> None:
        """Raises what MISREAD holds, Exhausted."""
        self._unit = unit
        header = unit.header
        self._size = header.end - header.entries
        if self._size > MAX_UNIT_BYTES:
            raise Exhausted(f"a unit of {self._size} bytes; {MAX_UNIT_BYTES} are looked at")
        self._begins = array("Q")
        self._ends = array("Q")
        self._places = array("I")
        self._behind = array("I")
        for begin, end, place, behind in sorted(self._functions()):
            self._begins.append(begin)
            self._ends.append(end)
            self._places.append(place)
            self._behind.append(behind)

    @property
    def kept_bytes(self) -> int:
        return FUNCTION_BYTES * len(self._begins)

    def call_at(self, address: int) -> Row | None:
        """The file and line of the call; None where nothing inlined is at the address.

        Raises what MISREAD holds, Exhausted.
        """
        at = bisect_right(self._begins, address) - 1
        if at < 0 or address >= self._ends[at]:
            return None
        return self._call_in(self._places[at], self._behind[at], address)

    def _read(self, place: int, behind: int) -> bytes:
        self._unit.sections.work.spend(behind - place)
        return self._unit.sections.piece(".debug_info", self._unit.header.entries + place, behind - place)

    def _shape(self, data: bytes, place: int) -> tuple[Abbreviation | None, int]:
        """Of the entry at this place, and where its attributes are; None for what ends a list of children."""
        code, place = unsigned_leb(data, place)
        return self._unit.abbreviations.get(code) if code else None, place

    def _functions(self) -> Iterator[tuple[int, int, int, int]]:
        """Where code is, its function's place, and the one behind all that is in the function."""
        data, layout, place = self._read(0, self._size), self._unit.header.layout, 0
        depth, count = 0, 0
        inside: list[tuple[int, int, list[Range]]] = []  # functions that have not ended: depth, place, code
        while place < len(data):
            entry = place
            shape, place = self._shape(data, place)
            if shape is None:
                depth -= 1
                while inside and inside[-1][0] >= depth:
                    _, function, code = inside.pop()
                    yield from ((begin, end, function, place) for begin, end in code)
                continue
            is_function = shape.tag == Tag.SUBPROGRAM and shape.has_code
            attributes: dict[int, Value] = {}
            if is_function or (shape.has_sibling and shape.tag not in _HOLD_FUNCTIONS):
                attributes, place = read(data, place, shape, layout, _FUNCTION if is_function else _SIBLING)
                place = self._behind_children(attributes, place)
            else:
                place = skip(data, place, shape, layout)
            has_more = shape.has_children and Attribute.SIBLING not in attributes
            if is_function:
                code = list(self._unit.ranges_of(attributes))
                count += len(code)
                if count > MAX_FUNCTIONS:
                    raise Exhausted(f"a unit with more than {MAX_FUNCTIONS} functions")
                if has_more:
                    inside.append((depth, entry, code))
                else:
                    yield from ((begin, end, entry, place) for begin, end in code)
            depth += has_more
        for _, function, code in inside:
            yield from ((begin, end, function, place) for begin, end in code)

    def _call_in(self, begin: int, behind: int, address: int) -> Row | None:
        layout = self._unit.header.layout
        data = self._read(begin, min(behind, self._size))
        shape, place = self._shape(data, 0)
        if shape is None or not shape.has_children:
            return None
        place = skip(data, place, shape, layout)
        depth, hidden_from = 1, 0
        while depth:
            shape, place = self._shape(data, place)
            if shape is None:
                depth -= 1
                hidden_from = 0 if depth <= hidden_from else hidden_from
                continue
            attributes: dict[int, Value] = {}
            if shape.tag == Tag.INLINED and shape.has_code and not hidden_from:
                attributes, place = read(data, place, shape, layout, _CALL)
                if self._is_at(attributes, address):
                    return call(attributes)
            elif shape.has_sibling and shape.tag not in _BLOCKS:
                attributes, place = read(data, place, shape, layout, _SIBLING)
            else:
                place = skip(data, place, shape, layout)
            if Attribute.SIBLING in attributes:
                place = self._behind_children(attributes, place + begin) - begin
            elif shape.has_children:
                hidden_from = hidden_from or (0 if shape.tag in _BLOCKS else depth)
                depth += 1
        return None

    def _is_at(self, attributes: dict[int, Value], address: int) -> bool:
        return any(begin <= address < end for begin, end in self._unit.ranges_of(attributes))

    def _behind_children(self, attributes: dict[int, Value], place: int) -> int:
        """By what the entry says; else its first child, whose turn it is then."""
        sibling = attributes.get(Attribute.SIBLING)
        if sibling is None:
            return place
        at = sibling[1]
        behind = at - (self._unit.header.entries - self._unit.header.begin) if isinstance(at, int) else -1
        if not place <= behind <= self._size:
            raise Malformed("an entry's sibling is before it, or in no unit")
        return behind


def call(attributes: dict[int, Value]) -> Row | None:
    """Of an inlined function's entry; None where it does not say, or says what cannot be."""
    file, line = (attributes.get(name, (0, b""))[1] for name in (Attribute.CALL_FILE, Attribute.CALL_LINE))
    if not isinstance(file, int) or not isinstance(line, int) or not 0 <= line <= MAX_LINE:
        return None
    return Row(file, line)
