# SPDX-License-Identifier: Apache-2.0
"""Source file and line of addresses in native code, as far as a file or its debug file has them (DWARF).

Only what is asked for is read: the unit that has the address, its line program, and its functions. Some of what was
read last is kept.
"""

from collections import OrderedDict
from functools import cached_property
from posixpath import join, normpath
from typing import Final, NamedTuple

from .debug_files import separate
from .debug_sections import MAX_TEXT_BYTES, Allowance, DebugSections, Work
from .debug_units import Unit, header_at, unit_length
from .dwarf import MISREAD, Malformed
from .frame_rules import Exhausted
from .inlined_calls import InlinedCalls
from .line_programs import LineTable, Name, Program
from .mapped_files import MappedFile
from .unit_index import UnitIndex

MAX_PROGRAM_BYTES: Final = 4 << 20
MAX_KEPT_BYTES: Final = 4 << 20
"""Of one file's units, besides the one that was asked for last."""

_HEADER_BYTES: Final = 12
_MISREAD: Final = (*MISREAD, OverflowError, Exhausted)  # addresses are kept in 64 bits


class Line(NamedTuple):
    """`number` has 32 bits; it is 0 where the compiler says that the code is of no line in particular."""

    file: bytes
    number: int


class _UnitLines:
    """Of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._paths: dict[int, bytes] = {}

    @property
    def kept_bytes(self) -> int:
        parts: list[LineTable | InlinedCalls | None] = [
            self.__dict__.get(name) for name in ("table", "calls")
        ]
        return self.unit.kept_bytes + sum(part.kept_bytes for part in parts if part is not None)

    @cached_property
    def table(self) -> LineTable | None:
        """None for a unit without lines. Raises what MISREAD holds, Exhausted."""
        place, sections = self.unit.line_program, self.unit.sections
        if place is None:
            return None
        length, begin, _ = unit_length(sections.read(".debug_line", place, _HEADER_BYTES), 0)
        if length > MAX_PROGRAM_BYTES:
            raise Exhausted(f"a line program of {length} bytes; {MAX_PROGRAM_BYTES} may be")
        sections.work.spend(length)
        return LineTable(sections.piece(".debug_line", place, begin + length))

    @cached_property
    def calls(self) -> InlinedCalls | None:
        """None where its functions cannot be read: then lines are those of the code."""
        try:
            return InlinedCalls(self.unit)
        except _MISREAD:
            return None

    def find(self, address: int) -> Line | None:
        """Raises what MISREAD holds, Exhausted."""
        if self.unit.holds(address) is False or self.table is None:
            return None
        row = self.table.find(address)
        call = self.calls.call_at(address) if self.calls is not None and row is not None else None
        row = call or row
        return Line(self._path(self.table.program, row.file), row.line) if row is not None else None

    def _path(self, program: Program, number: int) -> bytes:
        found = self._paths.get(number)
        if found is None:
            if not 0 <= number < len(program.files):
                raise Malformed(f"file {number} of {len(program.files)}")
            found = self._paths[number] = self._whole(program, program.files[number])
        return found

    def _whole(self, program: Program, name: Name) -> bytes:
        if name.folder >= len(program.folders):
            raise Malformed(f"folder {name.folder} of {len(program.folders)}")
        folder, path = self.unit.text(program.folders[name.folder].path), self.unit.text(name.path)
        compiled_in = self.unit.folder or self.unit.text(program.folders[0].path)
        # The first folder is the one in which the unit was compiled, which may itself be a relative one.
        return normpath(join(compiled_in, folder if name.folder else b"", path))[:MAX_TEXT_BYTES]


class SourceLines:
    """Of one file with debug information."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._index = UnitIndex(sections)
        self._units: OrderedDict[int, _UnitLines] = OrderedDict()
        self.is_unread = False
        """Something was asked for that is there, and could not be read."""

    @property
    def kept_bytes(self) -> int:
        """About how much memory is in use for it."""
        units = sum(unit.kept_bytes for unit in self._units.values())
        return self._sections.kept_bytes + self._index.kept_bytes + units

    def find(self, address: int) -> Line | None:
        """None where nothing is known, or cannot be read."""
        try:
            for place in self._index.units(address):
                unit = self._unit(place)
                if (found := unit.find(address)) is not None:
                    self._keep(place, unit)
                    return found
        except _MISREAD:
            self.is_unread = True
        return None

    def _unit(self, place: int) -> _UnitLines:
        return self._units.get(place) or _UnitLines(Unit(self._sections, header_at(self._sections, place)))

    def _keep(self, place: int, unit: _UnitLines) -> None:
        self._units[place] = unit
        self._units.move_to_end(place)
        while len(self._units) > 1 and sum(unit.kept_bytes for unit in self._units.values()) > MAX_KEPT_BYTES:
            self._units.popitem(last=False)


def lines_of(file: MappedFile, allowance: Allowance | None = None) -> SourceLines | None:
    """In the file itself, or in the one that has its debug information; None if there is none."""
    for image in (file.image, separate(file)):
        sections = DebugSections(image, Work(allowance=allowance)) if image is not None else None
        if sections is not None and ".debug_info" in sections and ".debug_line" in sections:
            return SourceLines(sections)
    return None
