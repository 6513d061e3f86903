# SPDX-License-Identifier: Apache-2.0
"""Line programs (DWARF 2 to 5, chapter 6.2): which line of which file the code at an address was compiled from.

Pure. What is malformed raises one of MISREAD, what is too large Exhausted.
"""

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from .debug_entries import Layout, Value, value
from .debug_units import unit_length
from .dwarf import Malformed, signed_leb, unsigned_leb
from .frame_rules import Exhausted

MAX_ROWS: Final = 400_000
MAX_FILES: Final = 65_535
MAX_FORMATS: Final = 16
ROW_BYTES: Final = 14
_MASK: Final = (1 << 64) - 1
_PATH, _FOLDER = 1, 2

_EXTENDED, _COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN = range(6)
_NEGATE_STATEMENT, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 6, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


class Name(NamedTuple):
    """Of a file or folder. `folder` is a number of the folders of its program."""

    path: Value
    folder: int


class Row(NamedTuple):
    """The number of a file of its program, and a line; 0 where no line is known."""

    file: int
    line: int


class Program(NamedTuple):
    """A program's beginning."""

    version: int
    folders: tuple[Name, ...]
    """0 is the one in which the unit was compiled, also where the program does not have it (before DWARF 5)."""
    files: tuple[Name, ...]
    """From 0 on in DWARF 5, from 1 on before: then there is an empty one at 0."""
    instruction_bytes: int
    starts_as_statement: bool
    line_base: int
    line_range: int
    lengths: bytes
    """How many operands the standard opcodes have, from opcode 1 on."""
    begin: int
    end: int
    """Where its instructions are."""


def program(data: bytes) -> Program:
    """The program at the beginning of the data; it must be all there."""
    length, place, offset_bytes = unit_length(data, 0)
    end = place + length
    version = int.from_bytes(data[place : place + 2], "little")
    place += 2
    if not 2 <= version <= 5 or end > len(data):
        raise Malformed(f"a line program of version {version} with {length} bytes")
    if version >= 5:
        place += 2
    begin = place + offset_bytes + int.from_bytes(data[place : place + offset_bytes], "little")
    place += offset_bytes
    instruction_bytes, place = data[place], place + 1
    if version >= 4:
        if data[place] != 1:
            raise Malformed("a line program for a machine with several operations an instruction")
        place += 1
    starts, base, line_range, opcodes = data[place], data[place + 1], data[place + 2], data[place + 3]
    place += 4
    lengths = data[place : place + max(0, opcodes - 1)]
    if not line_range or not opcodes or begin > end:
        raise Malformed("a line program that is not as it should be")
    layout = Layout(version, offset_bytes)
    read = _names_of_5 if version >= 5 else _names_before_5
    folders, files = read(data[:begin], place + max(0, opcodes - 1), layout)
    return Program(
        *(version, folders, files, instruction_bytes, bool(starts)),
        *(base - 256 if base >= 128 else base, line_range, lengths, begin, end),
    )


def _names_before_5(data: bytes, place: int, layout: Layout) -> tuple[tuple[Name, ...], tuple[Name, ...]]:
    nameless = Name((_STRING, b""), 0)
    folders, files = [nameless], [nameless]
    while data[place]:
        path, place = value(data, place, _STRING, layout)
        folders.append(Name(path, 0))
        _check(folders)
    place += 1
    while data[place]:
        path, place = value(data, place, _STRING, layout)
        folder, place = unsigned_leb(data, place)
        for _ in range(2):
            _, place = unsigned_leb(data, place)
        files.append(Name(path, folder))
        _check(files)
    return tuple(folders), tuple(files)


_STRING: Final = 0x08


def _names_of_5(data: bytes, place: int, layout: Layout) -> tuple[tuple[Name, ...], tuple[Name, ...]]:
    folders, place = _table(data, place, layout)
    files, place = _table(data, place, layout)
    return folders, files


def _table(data: bytes, place: int, layout: Layout) -> tuple[tuple[Name, ...], int]:
    formats = []
    count, place = data[place], place + 1
    for _ in range(count):
        content, place = unsigned_leb(data, place)
        form, place = unsigned_leb(data, place)
        formats.append((content, form))
    count, place = unsigned_leb(data, place)
    if len(formats) > MAX_FORMATS or (count and not formats):
        raise Malformed("names that are described in a wrong way")
    names: list[Name] = []
    for _ in range(count):
        found: dict[int, Value] = {}
        for content, form in formats:
            found[content], place = value(data, place, form, layout)
        folder = found.get(_FOLDER, (0, 0))[1]
        names.append(Name(found.get(_PATH, (_STRING, b"")), folder if isinstance(folder, int) else 0))
        _check(names)
    return tuple(names), place


def _check(names: list[Name]) -> None:
    if len(names) > MAX_FILES:
        raise Exhausted(f"a line program with more than {MAX_FILES} names")


class LineTable:
    """What a program says, by address."""

    def __init__(self, data: bytes) -> None:
        self.program = program(data)
        self.addresses = array("Q")
        self.lines = array("I")
        self.files = array("H")
        self._sequences: list[tuple[int, int, int, int]] = []
        """First address, that behind the last, first row, that behind the last."""
        _run(self.program, data, self)
        self._sequences.sort()

    @property
    def kept_bytes(self) -> int:
        return ROW_BYTES * len(self.addresses) + 100 * len(self._sequences) + 300 * len(self.program.files)

    def find(self, address: int) -> Row | None:
        """None where the program says nothing of the address."""
        at = bisect_right(self._sequences, address, key=lambda sequence: sequence[0]) - 1
        if at < 0 or address >= self._sequences[at][1]:
            return None
        _, _, first, last = self._sequences[at]
        row = bisect_right(self.addresses, address, first, last) - 1
        return Row(self.files[row], self.lines[row]) if row >= first else None

    def end_sequence(self, first: int, end: int) -> None:
        """Rows from `first` on are a sequence. One at address 0 is what the linker has left out."""
        if len(self.addresses) > first and 0 < self.addresses[first] < end:
            self._sequences.append((self.addresses[first], end, first, len(self.addresses)))
        else:
            self.leave_out(first)

    def leave_out(self, first: int) -> None:
        """All rows from this one on."""
        for column in (self.addresses, self.lines, self.files):
            del column[first:]


def _run(program: Program, data: bytes, table: LineTable) -> None:  # noqa: C901 - see below
    """One function, as a call for each instruction would take several times as long.

    Of rows at one address the last counts, unless it is no statement and the one before is.
    """
    end, lengths = program.end, program.lengths
    first_special = len(lengths) + 1
    step, base, line_range = program.instruction_bytes, program.line_base, program.line_range
    advances = [(special // line_range * step, base + special % line_range) for special in range(256)]
    const_add = advances[255 - first_special][0]
    addresses, rows_lines, files = table.addresses, table.lines, table.files
    place = program.begin
    while place < end:
        # A sequence begins.
        address, line, file, statement = 0, 1, 1, program.starts_as_statement
        at, at_statement, last_line, last_file = -1, False, -1, -1
        first = len(addresses)
        while place < end:
            opcode = data[place]
            place += 1
            if opcode >= first_special:
                advance, lines = advances[opcode - first_special]
                address += advance
                line += lines
            elif opcode == _SET_COLUMN:
                while data[place] >= 0x80:
                    place += 1
                place += 1
                continue
            elif opcode == _ADVANCE_LINE:
                lines, place = signed_leb(data, place)
                line += lines
                continue
            elif opcode == _NEGATE_STATEMENT:
                statement = not statement
                continue
            elif opcode == _EXTENDED:
                size, place = unsigned_leb(data, place)
                behind = place + size
                if not size or behind > end:
                    raise Malformed("a line program ends within an instruction")
                kind = data[place]
                if kind == _SET_ADDRESS:
                    address = int.from_bytes(data[place + 1 : behind], "little")
                place = behind
                if kind == _END_SEQUENCE:
                    break
                continue
            elif opcode == _ADVANCE_PC:
                size, place = unsigned_leb(data, place)
                address += size * step
                continue
            elif opcode == _CONST_ADD_PC:
                address += const_add
                continue
            elif opcode == _SET_FILE:
                file, place = unsigned_leb(data, place)
                continue
            elif opcode == _FIXED_ADVANCE_PC:
                address += data[place] | data[place + 1] << 8
                place += 2
                continue
            elif opcode != _COPY:
                for _ in range(lengths[opcode - 1]):
                    while data[place] >= 0x80:
                        place += 1
                    place += 1
                continue
            # A row.
            if address == at:
                if statement or not at_statement:
                    rows_lines[-1], files[-1] = line & 0xFFFFFFFF, file & 0xFFFF
                    at_statement, last_line, last_file = statement, line, file
            elif line != last_line or file != last_file:
                if len(addresses) >= MAX_ROWS:
                    raise Exhausted(f"a line program with more than {MAX_ROWS} rows")
                addresses.append(address & _MASK)
                rows_lines.append(line & 0xFFFFFFFF)
                files.append(file & 0xFFFF)
                at, at_statement, last_line, last_file = address, statement, line, file
        else:
            table.leave_out(first)  # a sequence without an end
            return
        table.end_sequence(first, address & _MASK)
