# SPDX-License-Identifier: Apache-2.0
"""The units of a file's debug information, each made by one run of a compiler: where they are, and what code they have.

The functions of a unit are inlined_calls.py's, its lines line_programs.py's.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from .debug_entries import Abbreviations, Attribute, Form, Layout, Value, read
from .debug_sections import DebugSections
from .dwarf import Malformed, unsigned_leb

MAX_ROOT_BYTES: Final = 4096
"""Of the entry that stands for a unit."""

MAX_LIST_BYTES: Final = 256 << 10
_LIST_BYTES: Final = 512
_HEADER_BYTES: Final = 64
_UNIT_BYTES: Final = 4096
_RANGE_BYTES: Final = 130
_MASK: Final = (1 << 64) - 1
_COMPILED, _TYPES, _PARTIAL, _SKELETON = 1, 2, 3, 4
_WORDS: Final = struct.Struct("<QQ")
_ROOT: Final = frozenset(Attribute) - {Attribute.SIBLING, Attribute.CALL_FILE, Attribute.CALL_LINE}

Range = tuple[int, int]
"""Addresses as linked, the last one not of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Of a unit, with places in .debug_info."""

    begin: int
    entries: int
    end: int
    layout: Layout
    abbreviations: int
    has_code: bool
    """False for those that hold types only."""


def headers(sections: DebugSections) -> Iterator[Header]:
    """Raises Malformed, Exhausted."""
    place, end = 0, sections.size(".debug_info")
    while place < end:
        header = header_at(sections, place)
        yield header
        place = header.end


def header_at(sections: DebugSections, place: int) -> Header:
    """Raises Malformed, Exhausted."""
    data = sections.read(".debug_info", place, _HEADER_BYTES)
    sections.work.spend(_HEADER_BYTES)
    try:
        length, at, offset_bytes = unit_length(data, 0)
        version = int.from_bytes(data[at : at + 2], "little")
        end, kind = place + at + length, _COMPILED
        at += 2
        if not 2 <= version <= 5 or end > sections.size(".debug_info"):
            raise Malformed(f"a unit of version {version} with {length} bytes")
        if version >= 5:
            kind, address_bytes = data[at], data[at + 1]
            at += 2
        abbreviations = int.from_bytes(data[at : at + offset_bytes], "little")
        at += offset_bytes
        if version < 5:
            address_bytes = data[at]
            at += 1
    except IndexError:
        raise Malformed("a unit's header is cut") from None
    if kind == _SKELETON:
        at += 8  # its number
    return Header(
        begin=place,
        entries=place + at,
        end=end,
        layout=Layout(version, offset_bytes),
        abbreviations=abbreviations,
        has_code=kind in (_COMPILED, _PARTIAL, _SKELETON) and address_bytes == 8,
    )


def unit_length(data: bytes, place: int) -> tuple[int, int, int]:
    """How long what follows is, the place where that begins, and the bytes that offsets in it have."""
    if len(data) < place + 12:
        raise Malformed("a length is cut")
    length = int.from_bytes(data[place : place + 4], "little")
    if length < 0xFFFFFFF0:
        return length, place + 4, 4
    if length == 0xFFFFFFFF:
        return int.from_bytes(data[place + 4 : place + 12], "little"), place + 12, 8
    raise Malformed(f"a length of {length:#x}")


class Unit:
    """One unit and what stands at its beginning."""

    def __init__(self, sections: DebugSections, header: Header) -> None:
        """Raises what MISREAD holds, Exhausted."""
        self.header = header
        self.sections = sections
        size = min(MAX_ROOT_BYTES, header.end - header.entries)
        data = sections.read(".debug_info", header.entries, size)
        sections.work.spend(_HEADER_BYTES)
        code, place = unsigned_leb(data, 0)
        shape = self.abbreviations.get(code)
        self.tag = shape.tag
        self._root, _ = read(data, place, shape, header.layout, _ROOT)

    @cached_property
    def abbreviations(self) -> Abbreviations:
        begin = self.header.abbreviations
        return Abbreviations(
            lambda size: self.sections.read(".debug_abbrev", begin, size), self.header.layout
        )

    @property
    def kept_bytes(self) -> int:
        """About how much memory is in use for it."""
        ranges = self.__dict__.get("ranges") or ()
        return _UNIT_BYTES + self.abbreviations.kept_bytes + _RANGE_BYTES * len(ranges)

    @cached_property
    def line_program(self) -> int | None:
        """Where it is in .debug_line."""
        return self._number(Attribute.STATEMENTS)

    @cached_property
    def folder(self) -> bytes:
        """In which it was compiled; empty if it does not say."""
        return self._text(Attribute.FOLDER)

    @cached_property
    def name(self) -> bytes:
        """The path of its source; empty if it does not say."""
        return self._text(Attribute.NAME)

    @cached_property
    def ranges(self) -> tuple[Range, ...] | None:
        """Where its code is; None if it does not say."""
        if Attribute.RANGES not in self._root and Attribute.HIGH not in self._root:
            return None
        return tuple(self.ranges_of(self._root))

    def holds(self, address: int) -> bool | None:
        """None if it does not say."""
        ranges = self.ranges
        return any(begin <= address < end for begin, end in ranges) if ranges is not None else None

    def ranges_of(self, attributes: dict[int, Value]) -> Iterator[Range]:
        """Where the code of one of its entries is. What linkers have left out is at address 0."""
        for begin, end in self._ranges_of(attributes):
            if 0 < begin < end <= _MASK:
                yield begin, end

    def _ranges_of(self, attributes: dict[int, Value]) -> Iterator[Range]:
        if Attribute.RANGES in attributes:
            yield from self._listed(attributes[Attribute.RANGES])
        elif Attribute.LOW in attributes and Attribute.HIGH in attributes:
            begin = self._address(attributes[Attribute.LOW])
            form, high = attributes[Attribute.HIGH]
            yield begin, self._address((form, high)) if _is_address(form) else begin + _number(high)

    @cached_property
    def _base(self) -> int:
        """What ranges are relative to."""
        low = self._root.get(Attribute.LOW)
        return self._address(low) if low is not None else 0

    def _listed(self, where: Value) -> Iterator[Range]:
        form, place = where[0], _number(where[1])
        version, offset_bytes = self.header.layout
        if version < 5:
            yield from self._list(".debug_ranges", place)
            return
        if form == Form.RANGES_INDEX:
            base = self._number(Attribute.RANGES_BASE)
            base = base if base is not None else (12 if offset_bytes == 4 else 20)
            at = self.sections.piece(".debug_rnglists", base + place * offset_bytes, offset_bytes)
            place = base + int.from_bytes(at, "little")
        yield from self._list(".debug_rnglists", place)

    def _list(self, name: str, place: int, size: int = _LIST_BYTES) -> list[Range]:
        """Most lists are short; one that does not end within what was read is read anew, with more."""
        data = self.sections.read(name, place, size)
        self.sections.work.spend(size)
        parse = _before_5 if name == ".debug_ranges" else self._of_5
        try:
            return list(parse(data, self._base))
        except (IndexError, struct.error):
            if len(data) < size or size >= MAX_LIST_BYTES:
                raise Malformed("a list of ranges without an end") from None
            return self._list(name, place, min(16 * size, MAX_LIST_BYTES))

    def _of_5(self, data: bytes, base: int) -> Iterator[Range]:
        place = 0
        while (kind := data[place]) != _END:
            place += 1
            if kind == _OFFSETS:
                begin, place = unsigned_leb(data, place)
                end, place = unsigned_leb(data, place)
                yield base + begin, base + end
            elif kind in (_START_END, _START_LENGTH, _BASE):
                begin, place = _word(data, place), place + 8
                if kind == _BASE:
                    base = begin
                    continue
                if kind == _START_END:
                    end, place = _word(data, place), place + 8
                else:
                    length, place = unsigned_leb(data, place)
                    end = begin + length
                yield begin, end
            elif kind in (_BASE_INDEX, _INDICES, _INDEX_LENGTH):
                number, place = unsigned_leb(data, place)
                begin = self._indexed(number)
                if kind == _BASE_INDEX:
                    base = begin
                    continue
                number, place = unsigned_leb(data, place)
                yield begin, self._indexed(number) if kind == _INDICES else begin + number
            else:
                raise Malformed(f"a list of ranges with entry kind {kind}")

    def _indexed(self, number: int) -> int:
        """An address by its place in the unit's table of addresses."""
        base = self._number(Attribute.ADDRESSES_BASE)
        base = base if base is not None else self._number(Attribute.GNU_ADDRESSES_BASE)
        return _word(self.sections.piece(".debug_addr", (base or 0) + 8 * number, 8), 0)

    def _address(self, given: Value) -> int:
        form, number = given[0], _number(given[1])
        return number if form == Form.ADDRESS else self._indexed(number)

    def _number(self, attribute: Attribute) -> int | None:
        found = self._root.get(attribute)
        return _number(found[1]) if found is not None else None

    def _text(self, attribute: Attribute) -> bytes:
        found = self._root.get(attribute)
        return self.text(found) if found is not None else b""

    def text(self, given: Value) -> bytes:
        """A string; empty where it is in yet another file."""
        form, at = given
        if isinstance(at, bytes):
            return at if form == Form.STRING else b""
        if form == Form.LINE_STRING_AT:
            return self.sections.text(".debug_line_str", at)
        if form in (Form.STRING_INDEX, Form.GNU_STRING_INDEX) or 0x25 <= form <= 0x28:
            size = self.header.layout.offset_bytes
            base = self._number(Attribute.STRINGS_BASE) or 0
            at = int.from_bytes(self.sections.piece(".debug_str_offsets", base + at * size, size), "little")
            return self.sections.text(".debug_str", at)
        return self.sections.text(".debug_str", at) if form == Form.STRING_AT else b""


_END, _BASE_INDEX, _INDICES, _INDEX_LENGTH, _OFFSETS, _BASE, _START_END, _START_LENGTH = range(8)
"""What an entry of a list of ranges is (DWARF 5, 7.25)."""


def _before_5(data: bytes, base: int) -> Iterator[Range]:
    """A list of ranges as DWARF 2 to 4 have it."""
    place = 0
    while True:
        begin, end = _WORDS.unpack_from(data, place)
        place += _WORDS.size
        if begin == _MASK:
            base = end
        elif not begin and not end:
            return
        elif begin < end:
            yield base + begin & _MASK, base + end & _MASK


def _is_address(form: int) -> bool:
    return (
        form in (Form.ADDRESS, Form.ADDRESS_INDEX, Form.GNU_ADDRESS_INDEX)
        or Form.ADDRESS_INDEX_1 <= form <= Form.ADDRESS_INDEX_4
    )


def _number(given: int | bytes) -> int:
    if isinstance(given, bytes):
        raise Malformed("there is text where a number should be")
    return given


def _word(data: bytes, place: int) -> int:
    if len(data) < place + 8:
        raise IndexError("an address is cut")
    return int.from_bytes(data[place : place + 8], "little")
