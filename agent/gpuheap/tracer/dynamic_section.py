# SPDX-License-Identifier: Apache-2.0
"""What a library or program says of itself for the dynamic linker: its name, and whether it exports a symbol.

Every file that any process maps is looked at once, so this must cost microseconds: a few small reads. What they hold is
read by `gpuheap.stacks.elf` when that is of interest. The files belong to other people's processes: whatever is
in them, the work is bounded.
"""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MAX_ENTRIES: Final = 512
"""Of a dynamic section; real ones have about thirty."""
MAX_NAME_BYTES: Final = 128
_HEAD_BYTES: Final = (
    4096  # the header, and behind it, in every file that a linker writes, the program headers
)
_MAGIC: Final = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_PROGRAM, _SHARED = 2, 3
_HEADER: Final = struct.Struct("<16xHHIQQQIHHH")  # Elf64_Ehdr up to e_phnum
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_ENTRY: Final = struct.Struct("<QQ")  # Elf64_Dyn
_LOAD, _DYNAMIC = 1, 2
_NULL, _STRTAB, _SYMTAB, _SONAME, _GNU_HASH = 0, 5, 6, 14, 0x6FFFFEF5
_SYMBOL: Final = struct.Struct("<IBBHQQ")  # Elf64_Sym
_HASH_HEAD: Final = struct.Struct("<4I")  # buckets, first symbol, words of the filter, its shift
MAX_CHAIN: Final = 256
"""Symbols in one bucket; real ones have about four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """The dynamic section of an open file: values by tag, and where addresses are in the file."""

    fd: int
    values: Mapping[int, int]
    segments: Sequence[tuple[int, ...]]

    def offset(self, tag: int) -> int | None:
        """Of what this tag's value is the address of."""
        address = self.values.get(tag)
        if address is None:
            return None
        for kind, _, offset, start, _, size, _, _ in self.segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        return None

    @property
    def soname(self) -> str | None:
        """The name that a shared library gives itself."""
        strings, name = self.offset(_STRTAB), self.values.get(_SONAME)
        return None if strings is None or name is None else _text(self.fd, strings + name)

    def exports(self, name: str) -> bool:
        """Whether the hash table for the dynamic linker (DT_GNU_HASH) has a symbol of this name."""
        table, symbols, strings = (self.offset(tag) for tag in (_GNU_HASH, _SYMTAB, _STRTAB))
        if table is None or symbols is None or strings is None:
            return False
        head = _read(self.fd, _HASH_HEAD.size, table)
        if len(head) < _HASH_HEAD.size:
            return False
        buckets, first, words, shift = _HASH_HEAD.unpack(head)
        if not buckets or not words:
            return False
        wanted = _hash(name)
        table += _HASH_HEAD.size
        mask = 1 << wanted % 64 | 1 << (wanted >> (shift & 31)) % 64
        if _number(self.fd, table + 8 * (wanted // 64 % words), 8) & mask != mask:
            return False
        table += 8 * words
        begin = _number(self.fd, table + 4 * (wanted % buckets), 4)
        table += 4 * buckets
        for place in range(begin, begin + MAX_CHAIN) if begin >= first else ():
            found = _number(self.fd, table + 4 * (place - first), 4)
            if found | 1 == wanted | 1:
                text = _number(self.fd, symbols + place * _SYMBOL.size, 4)
                if _text(self.fd, strings + text) == name:
                    return True
            if found & 1:
                break
        return False


def dynamic(fd: int) -> Dynamic | None:
    """Of the open file; None for what is no program or shared library, or has none. Raises OSError."""
    head = os.pread(fd, _HEAD_BYTES, 0)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        return None
    kind, _, _, _, table, _, _, _, entry_bytes, count = _HEADER.unpack_from(head)
    if kind not in (_PROGRAM, _SHARED) or entry_bytes != _SEGMENT.size:
        return None
    if table + count * _SEGMENT.size > len(head):
        return None
    segments = [_SEGMENT.unpack_from(head, table + i * _SEGMENT.size) for i in range(count)]
    section = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if section is None:
        return None
    values = dict(_entries(fd, offset=section[2], size=section[5]))
    return Dynamic(fd=fd, values=values, segments=segments)


def soname(fd: int) -> str | None:
    """The name of the library in the open file; None for what is no library, or has none. Raises OSError."""
    found = dynamic(fd)
    return found.soname if found else None


def _hash(name: str) -> int:
    """That of DT_GNU_HASH."""
    value = 5381
    for byte in name.encode():
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def _entries(fd: int, *, offset: int, size: int) -> Iterator[tuple[int, int]]:
    data = _read(fd, min(size, MAX_ENTRIES * _ENTRY.size), offset)
    for tag, value in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        if tag == _NULL:
            return
        yield tag, value


def _text(fd: int, offset: int) -> str | None:
    text, end, _ = _read(fd, MAX_NAME_BYTES, offset).partition(b"\0")
    return os.fsdecode(text) if end else None


def _number(fd: int, offset: int, size: int) -> int:
    return int.from_bytes(_read(fd, size, offset), "little")


def _read(fd: int, count: int, offset: int) -> bytes:
    """Nothing where a file claims to have something beyond what files can have."""
    return os.pread(fd, count, offset) if offset < 1 << 62 else b""
