# SPDX-License-Identifier: Apache-2.0
"""The name that a shared library gives itself (DT_SONAME), with four small reads.

Every library that any process maps is looked at once, so this must cost microseconds; what the libraries hold is read
by `gpuheap.stacks.elf` when the name is of interest. The files belong to other people's processes: whatever is
in them, the work is bounded.
"""

import os
import struct
from collections.abc import Iterator
from typing import Final

MAX_ENTRIES: Final = 512
"""Of a dynamic section; real ones have about thirty."""
MAX_NAME_BYTES: Final = 128
_HEAD_BYTES: Final = (
    4096  # the header, and behind it, in every file that a linker writes, the program headers
)
_MAGIC: Final = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_SHARED: Final = 3
_HEADER: Final = struct.Struct("<16xHHIQQQIHHH")  # Elf64_Ehdr up to e_phnum
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_ENTRY: Final = struct.Struct("<QQ")  # Elf64_Dyn
_LOAD, _DYNAMIC = 1, 2
_NULL, _STRTAB, _SONAME = 0, 5, 14


def soname(fd: int) -> str | None:
    """Of the open file; None for what is no shared library, or has none. Raises OSError."""
    head = os.pread(fd, _HEAD_BYTES, 0)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        return None
    kind, _, _, _, table, _, _, _, entry_bytes, count = _HEADER.unpack_from(head)
    if kind != _SHARED or entry_bytes != _SEGMENT.size or table + count * _SEGMENT.size > len(head):
        return None
    segments = [_SEGMENT.unpack_from(head, table + i * _SEGMENT.size) for i in range(count)]
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if dynamic is None:
        return None
    strings = name = None
    for tag, value in _entries(fd, offset=dynamic[2], size=dynamic[5]):
        if tag == _STRTAB:
            strings = value
        elif tag == _SONAME:
            name = value
    if strings is None or name is None:
        return None
    for kind, _, offset, address, _, size, _, _ in segments:
        if kind == _LOAD and address <= strings < address + size:
            return _text(fd, offset + strings - address + name)
    return None


def _entries(fd: int, *, offset: int, size: int) -> Iterator[tuple[int, int]]:
    data = _read(fd, min(size, MAX_ENTRIES * _ENTRY.size), offset)
    for tag, value in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        if tag == _NULL:
            return
        yield tag, value


def _text(fd: int, offset: int) -> str | None:
    text, end, _ = _read(fd, MAX_NAME_BYTES, offset).partition(b"\0")
    return os.fsdecode(text) if end else None


def _read(fd: int, count: int, offset: int) -> bytes:
    """Nothing where a file claims to have something beyond what files can have."""
    return os.pread(fd, count, offset) if offset < 1 << 62 else b""
