# SPDX-License-Identifier: Apache-2.0
"""Lines of Python instructions: the line tables of code objects, in each format that CPython 3.8 and newer have had.

The formats are those of Objects/lnotab_notes.txt (3.8 to 3.10), Objects/locations.md (3.11) and
InternalDocs/code_objects.md (3.13) in CPython's sources. Takes any bytes: tables come from other processes.
"""

from collections.abc import Iterator
from typing import Final

from .cpython_layouts import LinesFormat


def line_of(table: bytes, first_line: int, instruction: int, lines_format: int) -> int:
    """The line of the instruction at byte offset `instruction`; 0 where the table has none.

    `lines_format` is a LinesFormat; of others there are no lines.
    """
    if lines_format == LinesFormat.LNOTAB:
        return _by_lnotab(table, first_line, instruction)
    if lines_format not in (LinesFormat.RANGES, LinesFormat.LOCATIONS):
        return 0
    begin, line = 0, first_line
    for size, delta, has_line in _ranges(table) if lines_format == LinesFormat.RANGES else _locations(table):
        line += delta
        if begin <= instruction < begin + size:
            return line if has_line else 0
        begin += size
    return 0


def _by_lnotab(table: bytes, first_line: int, instruction: int) -> int:
    """Pairs of increments, of the offset and of the line; there is no telling where the last line ends."""
    offset, line = 0, first_line
    for increment, delta in _pairs(table):
        offset += increment
        if offset > instruction:
            break
        line += delta
    return line


def _ranges(table: bytes) -> Iterator[tuple[int, int, bool]]:
    """3.10: pairs of a range's size in bytes and its line's distance from the last; -128 for a range without a line."""
    for size, delta in _pairs(table):
        yield size, delta if delta != -128 else 0, delta != -128


def _pairs(table: bytes) -> Iterator[tuple[int, int]]:
    for unsigned, byte in zip(table[::2], table[1::2], strict=False):
        yield unsigned, byte - 256 if byte > 127 else byte


_NO_LOCATION: Final = 15
_LONG: Final = 14
_NO_COLUMNS: Final = 13
_ONE_LINE: Final = (10, 11, 12)
_MOST_BITS: Final = 36
"""Of a number in the table; CPython's own have 32."""


def _locations(table: bytes) -> Iterator[tuple[int, int, bool]]:
    """3.11 and newer: size of the range in bytes, lines that it advances, whether it has a line.

    Ends where the table does, also within an entry, or makes no sense.
    """
    data = iter(table)
    for head in data:
        code, units = head >> 3 & 15, (head & 7) + 1
        try:
            delta = _lines_advanced(code, data)
        except (StopIteration, ValueError):
            return
        yield 2 * units, delta, code != _NO_LOCATION


def _lines_advanced(code: int, data: Iterator[int]) -> int:
    """Reads the rest of an entry. Raises StopIteration, ValueError."""
    if code == _NO_LOCATION:
        return 0
    if code == _LONG:
        delta = _signed(data)
        for _ in range(3):  # end line, column, end column
            _unsigned(data)
        return delta
    if code == _NO_COLUMNS:
        return _signed(data)
    next(data)  # columns: the short form has one byte for both
    if code not in _ONE_LINE:
        return 0
    next(data)
    return code - _ONE_LINE[0]


def _unsigned(data: Iterator[int]) -> int:
    value = 0
    for shift in range(0, _MOST_BITS, 6):
        byte = next(data)
        value |= (byte & 63) << shift
        if not byte & 64:
            return value
    raise ValueError("a number that is too long")


def _signed(data: Iterator[int]) -> int:
    value = _unsigned(data)
    return -(value >> 1) if value & 1 else value >> 1
