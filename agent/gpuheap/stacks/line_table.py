# SPDX-License-Identifier: Apache-2.0
"""Lines of Python instructions: `co_linetable` of CPython 3.11 and newer.

The format is that of Objects/locations.md (3.11) and InternalDocs/code_objects.md (3.13) in CPython's sources.
"""

from collections.abc import Iterator


def line_of(table: bytes, first_line: int, instruction: int) -> int:
    """The line of the instruction at byte offset `instruction`, 0 where the table has none. Takes any bytes."""
    line, begin = first_line, 0
    try:
        for code, units, delta in _entries(table):
            line += delta
            end = begin + 2 * units
            if begin <= instruction < end:
                return line if code != _NO_LOCATION else 0
            begin = end
    except StopIteration:  # the table ends within an entry
        pass
    return 0


_NO_LOCATION = 15
_LONG = 14
_NO_COLUMNS = 13
_ONE_LINE = (10, 11, 12)


def _entries(table: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind of the entry, code units it covers, lines it advances)"""
    data = iter(table)
    for head in data:
        code, units = head >> 3 & 15, (head & 7) + 1
        delta = 0
        if code == _LONG:
            delta = _signed(data)
            for _ in range(3):  # end line, column, end column
                _unsigned(data)
        elif code == _NO_COLUMNS:
            delta = _signed(data)
        elif code in _ONE_LINE:
            delta = code - _ONE_LINE[0]
            next(data), next(data)
        elif code < _ONE_LINE[0]:  # short form: columns only
            next(data)
        yield code, units, delta


def _unsigned(data: Iterator[int]) -> int:
    value = shift = 0
    while True:
        byte = next(data)
        value |= (byte & 63) << shift
        if not byte & 64:
            return value
        shift += 6


def _signed(data: Iterator[int]) -> int:
    value = _unsigned(data)
    return -(value >> 1) if value & 1 else value >> 1
