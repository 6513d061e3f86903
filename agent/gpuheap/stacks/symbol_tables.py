# SPDX-License-Identifier: Apache-2.0
"""Which function of a symbol table holds an address, without reading the table into objects.

A table can have hundreds of thousands of entries in no order. What is kept of each is two bytes of its address, the
number of its 64 KiB of address space: enough to find, at the speed of a byte search, the few entries near an address,
which are then read from the file.
"""

import struct
import sys
from bisect import bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

from .elf_image import SHT_NOBITS, ElfImage, Source

MAX_SYMBOLS: Final = 4_000_000
MAX_READ: Final = 16_384
"""Entries near one address: four functions in 16 bytes, and more than compilers make."""

MAX_NAMES: Final = 64
"""Of one function."""

MAX_NAME_BYTES: Final = 16 << 10
MAX_KEPT: Final = 65_536
MAX_NEIGHBOURHOODS_BACK: Final = 32
"""How far before an address its function may begin: 2 MiB."""

_SYMBOL: Final = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_NEIGHBOURHOOD_BITS: Final = 16
_ADDRESS_BYTES: Final = slice(5, None, 12)
"""Of a table as 16-bit numbers: the second of each address, which is its neighbourhood's number but for 16 bits."""

_SYMBOLS_AT_ONCE: Final = 1 << 16
_NEAR_BYTES: Final = 192
"""About what an entry that is kept takes."""

_UNDEFINED: Final = 0
_RESERVED: Final = 0xFF00
_NO_TYPE: Final = 0
_FUNCTION: Final = 2
_RESOLVER: Final = 10  # STT_GNU_IFUNC
_LOCAL, _GLOBAL, _WEAK = range(3)


class Found(NamedTuple):
    """A function by its first address, as linked."""

    address: int
    name: bytes


class _Near(NamedTuple):
    """A symbol near an address."""

    address: int
    size: int
    rank: int
    """Higher for what others may know it by."""
    name: int


class SymbolTable:
    """One table: where it and its names are, and the index of it."""

    def __init__(
        self,
        symbols: Source,
        place: tuple[int, int],
        names: Source,
        names_place: tuple[int, int],
        *,
        whole: bool,
    ) -> None:
        """`whole`: it has all functions, so one without a size reaches to the next."""
        self._symbols = symbols
        self._offset, size = place
        self._names = names
        self._names_offset, self._names_size = names_place
        self._whole = whole
        self._count = min(size // _SYMBOL.size, MAX_SYMBOLS)
        self._near: OrderedDict[int, list[_Near]] = OrderedDict()
        self._kept = 0
        self._neighbourhoods = self._index()

    @property
    def kept_bytes(self) -> int:
        """About how much memory the index takes."""
        return len(self._neighbourhoods) + _NEAR_BYTES * self._kept

    def find(self, address: int) -> Found | None:
        """The innermost function that holds the address."""
        home = address >> _NEIGHBOURHOOD_BITS
        for number in range(home, max(home - MAX_NEIGHBOURHOODS_BACK, 0) - 1, -1):
            near = self._neighbours(number)
            index = _behind(near, address)
            for symbol in reversed(near[:index]):
                if address < symbol.address + symbol.size:
                    return Found(symbol.address, self._best_name(near, symbol))
            if index and number == home and self._whole and not near[index - 1].size:
                return Found(near[index - 1].address, self._best_name(near, near[index - 1]))
            if index and number != home:
                break  # what begins before another function ends before it
        return None

    def _index(self) -> bytes:
        pieces = []
        for first in range(0, self._count, _SYMBOLS_AT_ONCE):
            count = min(_SYMBOLS_AT_ONCE, self._count - first)
            data = self._symbols.read(self._offset + first * _SYMBOL.size, count * _SYMBOL.size)
            whole = len(data) // _SYMBOL.size * _SYMBOL.size
            pieces.append(memoryview(data[:whole]).cast("H")[_ADDRESS_BYTES].tobytes())
            if whole < count * _SYMBOL.size:
                break
        return b"".join(pieces)

    def _neighbours(self, number: int) -> list[_Near]:
        """Functions that begin in this 64 KiB, in order of their addresses."""
        found = self._near.get(number)
        if found is None:
            found = self._near[number] = sorted(self._read(number))
            self._kept += len(found) + 1
            while self._kept > MAX_KEPT:
                self._kept -= len(self._near.popitem(last=False)[1]) + 1
        return found

    def _read(self, number: int) -> list[_Near]:
        """None of them if there are too many: that is no table of functions."""
        wanted = (number & 0xFFFF).to_bytes(2, sys.byteorder)
        found, read, at = [], 0, self._neighbourhoods.find(wanted)
        while at >= 0:
            if not at & 1:
                read += 1
                if read > MAX_READ:
                    return []
                near = self._usable(self._symbols.read(self._offset + at // 2 * _SYMBOL.size, _SYMBOL.size))
                if near is not None and near.address >> _NEIGHBOURHOOD_BITS == number:
                    found.append(near)
            at = self._neighbourhoods.find(wanted, at + 1)
        return found

    def _usable(self, data: bytes) -> _Near | None:
        if len(data) < _SYMBOL.size:
            return None
        name, info, _, section, address, size = _SYMBOL.unpack(data)
        kind, binding = info & 0xF, info >> 4
        if section == _UNDEFINED or section >= _RESERVED or not name:
            return None
        if kind in (_FUNCTION, _RESOLVER):
            return _Near(address, size, 2 - (binding == _LOCAL), name)
        # A label of hand-written code, which did not say that it is a function.
        return _Near(address, 0, 0, name) if kind == _NO_TYPE and self._whole else None

    def _best_name(self, near: list[_Near], found: _Near) -> bytes:
        """Of several names for one address the one that a reader knows: exported, not marked as internal, short."""
        first, last = _behind(near, found.address - 1), _behind(near, found.address)
        same = [symbol for symbol in near[first:last][:MAX_NAMES] if symbol.size == found.size]
        # Some tables have the version of an exported name in it.
        names = [(symbol.rank, self._name(symbol.name).partition(b"@")[0]) for symbol in same]
        return max(
            names, key=lambda ranked: (ranked[0], -_underscores(ranked[1]), -len(ranked[1]), ranked[1])
        )[1]

    def _name(self, place: int) -> bytes:
        if place >= self._names_size:
            return b""
        size = min(256, self._names_size - place)
        while True:
            data = self._names.read(self._names_offset + place, size)
            end = data.find(b"\0")
            if end >= 0 or size >= MAX_NAME_BYTES or len(data) < size:
                return data[:end] if end >= 0 else data
            size = min(size * 8, MAX_NAME_BYTES)


def _behind(near: list[_Near], address: int) -> int:
    """The index behind the last symbol that begins at or before the address."""
    return bisect_right(near, address, key=lambda symbol: symbol.address)


def _underscores(name: bytes) -> int:
    """That mark a name as internal. C++'s encoded names begin with one that does not."""
    return 0 if name.startswith((b"_Z", b"_R")) else len(name) - len(name.lstrip(b"_"))


def table_in(image: ElfImage, name: str) -> SymbolTable | None:
    """The table in this section; None if it is not there, or not what it should be."""
    section = image.sections.get(name)
    if section is None or section.kind == SHT_NOBITS or section.entry_size != _SYMBOL.size:
        return None
    names = image.section(section.link)
    if names is None or names.kind == SHT_NOBITS:
        return None
    return SymbolTable(
        image.source,
        (section.offset, section.size),
        image.source,
        (names.offset, names.size),
        whole=name == ".symtab",
    )
