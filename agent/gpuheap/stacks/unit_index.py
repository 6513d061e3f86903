# SPDX-License-Identifier: Apache-2.0
"""Which units of a file's debug information may hold an address, without keeping all of their ranges.

Kept are the numbers of the pages of address space in which a unit has code; pages are larger where these would be too
many. They come from .debug_aranges and, for
units that are not in it, from the units themselves, which is slower; so these are looked at when an address is in none
of the others.
"""

import struct
from collections.abc import Iterator
from typing import Final

from .debug_sections import DebugSections
from .debug_units import Header, Range, Unit, headers, unit_length
from .dwarf import MISREAD, Malformed
from .frame_rules import Exhausted

MAX_ENTRIES: Final = 100_000
MAX_UNITS: Final = 100_000
MAX_RANGE_BYTES: Final = 1 << 28

KEPT_BYTES: Final = 60
"""About what an entry takes."""

_PAGE_BITS: Final = 12
_MAX_PAGE_BITS: Final = 24
_LARGER_BY_BITS: Final = 2
_PAGE_IS_WORK: Final = 8
_PIECE_BYTES: Final = 256 << 10
_HEADER_BYTES: Final = 32
_TUPLE: Final = struct.Struct("<QQ")


class UnitIndex:
    """Of one file."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._bits = _PAGE_BITS
        self._near: dict[int, list[int]] = {}
        self._entries = 0
        self._listed: set[int] | None = None
        self._complete = False

    @property
    def kept_bytes(self) -> int:
        return self._entries * KEPT_BYTES

    def units(self, address: int) -> Iterator[int]:
        """Where they begin in .debug_info; those that are found without looking at all come first.

        Raises Malformed, Exhausted.
        """
        if self._listed is None:
            self._listed = set()
            self._read_list()
        first = self._at(address)
        yield from first
        if not self._complete:
            self._complete = True
            self._read_units(self._listed)
            yield from (unit for unit in self._at(address) if unit not in first)

    def _at(self, address: int) -> tuple[int, ...]:
        return tuple(self._near.get(address >> self._bits, ()))

    def _add(self, unit: int, begin: int, end: int) -> None:
        if end - begin > MAX_RANGE_BYTES:
            return  # code is not that large
        pages = range(begin >> self._bits, (end - 1 >> self._bits) + 1)
        self._sections.work.spend(len(pages) * _PAGE_IS_WORK)
        for number in pages:
            near = self._near.setdefault(number, [])
            # Ranges of a unit come one after the other.
            if not near or near[-1] != unit:
                near.append(unit)
                self._entries += 1
        if self._entries > MAX_ENTRIES:
            self._have_larger_pages()

    def _have_larger_pages(self) -> None:
        while self._entries > MAX_ENTRIES // 2 and self._bits < _MAX_PAGE_BITS:
            larger: dict[int, dict[int, None]] = {}
            for number, units in self._near.items():
                larger.setdefault(number >> _LARGER_BY_BITS, {}).update(dict.fromkeys(units))
            self._near = {number: list(units) for number, units in larger.items()}
            self._entries = sum(map(len, self._near.values()))
            self._bits += _LARGER_BY_BITS
        if self._entries > MAX_ENTRIES // 2:
            raise Exhausted(f"units have code in more than {MAX_ENTRIES} places")

    def _read_list(self) -> None:
        """What .debug_aranges has. One that breaks its rules is believed as far as it keeps them."""
        assert self._listed is not None
        try:
            place, size = 0, self._sections.size(".debug_aranges")
            while place < size:
                unit, entries, behind = self._set_at(place, size)
                self._listed.add(unit)
                for begin, end in self._ranges(entries, behind):
                    self._add(unit, begin, end)
                place = behind
        except MISREAD:
            return

    def _set_at(self, place: int, size: int) -> tuple[int, int, int]:
        """Of the addresses of one unit: which, and from where to where they are."""
        header = self._sections.read(".debug_aranges", place, _HEADER_BYTES)
        length, at, offset_bytes = unit_length(header, 0)
        behind = place + at + length
        unit = int.from_bytes(header[at + 2 : at + 2 + offset_bytes], "little")
        address_bytes, segment_bytes = header[at + 2 + offset_bytes], header[at + 3 + offset_bytes]
        if behind > size or address_bytes != 8 or segment_bytes:
            raise Malformed("a list of addresses that is not as it should be")
        # Pairs of addresses begin where their size divides the place within the set.
        entries = at + 4 + offset_bytes + 15 & ~15
        return unit, place + entries, behind

    def _ranges(self, place: int, behind: int) -> Iterator[Range]:
        while place < behind:
            data = self._sections.read(".debug_aranges", place, min(_PIECE_BYTES, behind - place))
            self._sections.work.spend(len(data) + _HEADER_BYTES)
            for begin, length in _TUPLE.iter_unpack(data[: len(data) // _TUPLE.size * _TUPLE.size]):
                if begin and length:
                    yield begin, begin + length
            place += _PIECE_BYTES

    def _read_units(self, listed: set[int]) -> None:
        """A unit that breaks the rules is left out; behind one whose length is wrong there is none."""
        try:
            for number, header in enumerate(headers(self._sections)):
                if number >= MAX_UNITS:
                    raise Exhausted(f"there are more than {MAX_UNITS} units")
                if header.has_code and header.begin not in listed:
                    self._add_unit(header)
        except MISREAD:
            return

    def _add_unit(self, header: Header) -> None:
        try:
            ranges = Unit(self._sections, header).ranges or ()
        except MISREAD:
            return
        for begin, end in ranges:
            self._add(header.begin, begin, end)
