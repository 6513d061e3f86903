# SPDX-License-Identifier: Apache-2.0
"""An ELF file by address: what of it is mapped where, and the bytes there. Symbols of other programs are elf.py's.

Files are read, never mapped: the owner of a mapped file can truncate it, and a read of the mapping would then end the
reader with SIGBUS. Everything here is bounded, whatever the file says of itself.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from .elf import NotUsable

X86_64: Final = 62
"""EM_X86_64"""

MAX_SEGMENTS: Final = 256
MAX_SECTIONS: Final = 16_384
MAX_SECTION_NAMES_BYTES: Final = 1 << 20
MAX_NOTES_BYTES: Final = 64 << 10
MAX_BUILD_ID_BYTES: Final = 64

SECTIONS: Final = frozenset(
    {
        *(".eh_frame", ".symtab", ".dynsym", ".gnu_debugdata", ".gnu_debuglink", ".note.gnu.build-id"),
        *(".debug_abbrev", ".debug_addr", ".debug_aranges", ".debug_info", ".debug_line", ".debug_line_str"),
        *(".debug_ranges", ".debug_rnglists", ".debug_str", ".debug_str_offsets"),
    }
)
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_NOTE: Final = struct.Struct("<III")
_IDENT: Final = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_PT_LOAD: Final = 1
_PT_NOTE: Final = 4
_PT_GNU_EH_FRAME: Final = 0x6474E550
_PF_X: Final = 1
_NT_GNU_BUILD_ID: Final = 3
SHT_NOBITS: Final = 8
_SHF_COMPRESSED: Final = 0x800


class Source(Protocol):
    """Bytes to read from."""

    def read(self, offset: int, size: int) -> bytes:
        """Fewer than asked at the end; none beyond it."""


class OpenFile:
    """An open file, closed when nobody has it any more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def read(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self.fd, size, offset)
        except (OSError, OverflowError):  # as if the file ended: offsets come from the file itself
            return b""


class Memory:
    """Bytes that are here."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size] if offset >= 0 else b""


class Segment(NamedTuple):
    """A part of the file that is mapped."""

    executable: bool
    offset: int
    address: int
    size: int
    """In the file."""


@dataclass(frozen=True, slots=True)
class Section:
    kind: int
    address: int
    offset: int
    size: int
    link: int
    entry_size: int
    compressed: bool = False


class ElfImage:
    """Raises NotUsable if this is no 64-bit little-endian ELF file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        header = source.read(0, _HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_IDENT):
            raise NotUsable("it is no 64-bit little-endian ELF file")
        (
            _,
            _,
            self.machine,
            _,
            self.entry,
            segments,
            sections,
            _,
            _,
            size,
            count,
            section_size,
            number,
            names,
        ) = _HEADER.unpack(header)
        self._section_table = (sections, section_size, number, names)
        if size != _SEGMENT.size or count > MAX_SEGMENTS:
            raise NotUsable(f"it has {count} program headers of {size} bytes")
        self.segments: list[Segment] = []
        self.frame_header: tuple[int, int] | None = None
        """Address and size of .eh_frame_hdr."""
        self._notes: list[tuple[int, int]] = []
        table = source.read(segments, count * size)
        for kind, flags, offset, address, _, length, _, _ in _SEGMENT.iter_unpack(
            table[: len(table) // size * size]
        ):
            if kind == _PT_LOAD:
                self.segments.append(Segment(bool(flags & _PF_X), offset, address, length))
            elif kind == _PT_GNU_EH_FRAME:
                self.frame_header = (address, length)
            elif kind == _PT_NOTE:
                self._notes.append((offset, length))
        # Pages at the borders of segments belong to two of them; the one with the code is meant.
        self.segments.sort(key=lambda segment: not segment.executable)

    def address_at(self, offset: int) -> int | None:
        """The address, as linked, that a place in the file is mapped to."""
        for _, begin, address, size in self.segments:
            if 0 <= offset - begin < size:
                return address + offset - begin
        return None

    def read(self, address: int, size: int) -> bytes:
        """What the file holds for an address as linked; fewer bytes, or none, at the end of its segment."""
        for _, offset, begin, length in self.segments:
            if 0 <= address - begin < length:
                return self.source.read(offset + address - begin, min(size, length - (address - begin)))
        return b""

    @cached_property
    def sections(self) -> Mapping[str, Section]:
        """Those that anybody asks for, by name. None for a file whose section headers were stripped."""
        return dict(self._named_sections())

    def section(self, number: int) -> Section | None:
        """By its place in the table, as other sections refer to it."""
        offset, size, _, _ = self._section_table
        if not offset or size != _SECTION.size or not 0 <= number < MAX_SECTIONS:
            return None
        data = self.source.read(offset + number * size, size)
        return _section(_SECTION.unpack(data)) if len(data) == size else None

    def contents(self, section: Section, limit: int) -> bytes:
        """Of a section; none when it is larger than `limit`."""
        if section.kind == SHT_NOBITS or section.size > limit:
            return b""
        return self.source.read(section.offset, section.size)

    @cached_property
    def build_id(self) -> bytes:
        """As the linker wrote it; empty if it did not."""
        section = self.sections.get(".note.gnu.build-id")
        for offset, size in self._notes or ([(section.offset, section.size)] if section else []):
            found = _build_id(self.source.read(offset, min(size, MAX_NOTES_BYTES)))
            if found:
                return found
        return b""

    def _named_sections(self) -> Iterator[tuple[str, Section]]:
        offset, size, count, names = self._section_table
        if not offset or size != _SECTION.size:
            return
        first = self.source.read(offset, size)
        if len(first) < size:
            return
        # As many as do not fit into the header are in the first, unused entry.
        count = count or _SECTION.unpack(first)[5]
        text = self.section(_SECTION.unpack(first)[6] if names == 0xFFFF else names)
        if text is None:
            return
        strings = self.contents(text, MAX_SECTION_NAMES_BYTES)
        table = self.source.read(offset, min(count, MAX_SECTIONS) * size)
        for entry in _SECTION.iter_unpack(table[: len(table) // size * size]):
            name = _name(strings, entry[0])
            if name in SECTIONS:
                yield name, _section(entry)


def _section(entry: tuple[int, ...]) -> Section:
    return Section(
        kind=entry[1],
        address=entry[3],
        offset=entry[4],
        size=entry[5],
        link=entry[6],
        entry_size=entry[9],
        compressed=bool(entry[2] & _SHF_COMPRESSED),
    )


def _name(text: bytes, place: int) -> str:
    """Section names are short; what is not is nothing that anybody asks for."""
    end = text.find(b"\0", place, place + 64)
    return text[place:end].decode(errors="replace") if end > place else ""


def _build_id(notes: bytes) -> bytes:
    place = 0
    while place + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, place)
        name = place + _NOTE.size
        content = name + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[name : name + 4] == b"GNU\0" and 0 < size <= MAX_BUILD_ID_BYTES:
            return notes[content : content + size]
        place = content + (size + 3 & ~3)
    return b""
