# SPDX-License-Identifier: Apache-2.0
"""Which entry of .eh_frame describes a place in the code: through .eh_frame_hdr, or by reading all of them once.

Entries are parsed when they are asked for. What they say to do is frame_rules.py's.
"""

import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from .dwarf import (
    ALIGNED,
    MISREAD,
    OMIT,
    PC_RELATIVE,
    Malformed,
    pointer,
    signed_leb,
    unsigned_leb,
)
from .elf_image import SHT_NOBITS, ElfImage

MAX_ENTRY_BYTES: Final = 256 << 10
MAX_SCANNED_ENTRIES: Final = 200_000
MAX_SCANNED_BYTES: Final = 64 << 20
MAX_KEPT_COMMON_BYTES: Final = 1 << 20

_TABLE_ENTRY: Final = struct.Struct("<ii")
_TABLE_ENCODING: Final = 0x3B  # 32-bit numbers, signed, from the header's beginning: what all linkers write
_COUNT_ENCODING: Final = 0x03
_LONG_LENGTH: Final = 0xFFFFFFFF
_ENTRY_BYTES: Final = 256
"""About what an entry takes besides its instructions."""

_HEAD_BYTES: Final = 64
"""Most entries are no longer, and are had in one read."""


@dataclass(frozen=True, slots=True)
class CommonEntry:
    """A CIE: what many functions share."""

    code_alignment: int
    data_alignment: int
    return_register: int
    encoding: int
    has_size: bool
    """Entries tell the size of their augmentation data ('z')."""
    is_signal_frame: bool
    instructions: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """An FDE: one function, or a part of one."""

    common: CommonEntry
    begin: int
    end: int
    instructions: bytes


class FrameEntries:
    """Those of one file; its addresses are as linked."""

    def __init__(self, image: ElfImage) -> None:
        self._image = image
        self._common: dict[int, CommonEntry] = {}
        self._common_bytes = 0
        self._table: tuple[int, int, int] | None = None  # its address, the entries, what they count from
        self._scanned: tuple[array[int], array[int]] | None = None  # first addresses, and places of entries
        if image.frame_header is not None:
            self._table = self._header_table(image.frame_header[0])

    @property
    def kept_bytes(self) -> int:
        """About how much memory this takes."""
        return self._common_bytes + (16 * len(self._scanned[0]) if self._scanned else 0)

    def at(self, address: int) -> Entry | None:
        """None if no entry covers the address. Raises Malformed."""
        try:
            place = self._searched(address) if self._table else self._in_scanned(address)
            entry = self._entry(place) if place is not None else None
        except MISREAD as error:
            raise Malformed(f"the entry for {address:#x}: {error}") from error
        return entry if entry is not None and entry.begin <= address < entry.end else None

    def _header_table(self, header: int) -> tuple[int, int, int] | None:
        """Only as all linkers write it; any other is as good as none."""
        try:
            data = self._image.read(header, 32)
            version, pointer_encoding, count_encoding, table_encoding = data[:4]
            if version != 1 or (count_encoding, table_encoding) != (_COUNT_ENCODING, _TABLE_ENCODING):
                return None
            _, place = pointer(data, 4, pointer_encoding, header + 4, header)
            count, place = pointer(data, place, count_encoding)
        except (*MISREAD, ValueError):
            return None
        return (header + place, count, header) if count else None

    def _searched(self, address: int) -> int | None:
        """The place of the last entry that begins at or before the address."""
        assert self._table is not None
        table, high, base = self._table
        low, found = 0, None
        while low < high:
            middle = (low + high) // 2
            data = self._image.read(table + middle * _TABLE_ENTRY.size, _TABLE_ENTRY.size)
            if len(data) < _TABLE_ENTRY.size:  # the header claims more than there is
                high = middle
                continue
            begin, place = _TABLE_ENTRY.unpack(data)
            if base + begin <= address:
                low, found = middle + 1, base + place
            else:
                high = middle
        return found

    def _in_scanned(self, address: int) -> int | None:
        if self._scanned is None:
            self._scanned = self._scan()
        begins, places = self._scanned
        index = bisect_right(begins, address) - 1
        return places[index] if index >= 0 else None

    def _scan(self) -> "tuple[array[int], array[int]]":
        """All entries in order of their first address. What cannot be read ends it; what was read before is kept."""
        section = self._image.sections.get(".eh_frame")
        found: list[tuple[int, int]] = []
        if section is not None and section.kind != SHT_NOBITS and section.size <= MAX_SCANNED_BYTES:
            place, end = section.address, section.address + section.size
            try:
                for _ in range(MAX_SCANNED_ENTRIES):
                    length, body = self._length(place)
                    if place >= end or not length:
                        break
                    if self._image.read(body, 4) != b"\0\0\0\0":  # a CIE has 0 where an FDE names its CIE
                        entry = self._entry(place)
                        found.append((entry.begin, place))
                    place = body + length
            except MISREAD:
                pass
        found.sort()
        return array("Q", (begin for begin, _ in found)), array("Q", (place for _, place in found))

    def _length(self, place: int) -> tuple[int, int]:
        """Bytes of the entry at this place, and where they begin."""
        head = self._image.read(place, 12)
        length = int.from_bytes(head[:4], "little")
        if len(head) < 4:
            return 0, place
        if length == _LONG_LENGTH:
            return int.from_bytes(head[4:12], "little"), place + 12
        return length, place + 4

    def _body(self, place: int) -> tuple[bytes, int]:
        """The entry at this place without its length, and where that begins."""
        data = self._image.read(place, _HEAD_BYTES)
        length, skipped = int.from_bytes(data[:4], "little"), 4
        if length == _LONG_LENGTH:
            length, skipped = int.from_bytes(data[4:12], "little"), 12
        if not 4 < length <= MAX_ENTRY_BYTES:
            raise Malformed(f"it has {length} bytes, allowed are 5 to {MAX_ENTRY_BYTES}")
        if skipped + length > len(data):
            data = self._image.read(place, skipped + length)
            if len(data) < skipped + length:
                raise Malformed("it goes beyond its segment")
        return data[skipped : skipped + length], place + skipped

    def _entry(self, place: int) -> Entry:
        data, address = self._body(place)
        distance = int.from_bytes(data[:4], "little")
        if not distance:
            raise Malformed("it is a CIE where an FDE should be")
        common = self._common_entry(address - distance)
        begin, at = pointer(data, 4, common.encoding, address + 4)
        size, at = pointer(data, at, common.encoding & 0x0F)
        if common.has_size:
            augmentation, at = unsigned_leb(data, at)
            at += augmentation
        return Entry(common, begin, begin + size, data[at:])

    def _common_entry(self, place: int) -> CommonEntry:
        found = self._common.get(place)
        if found is None:
            data, address = self._body(place)
            found = self._common[place] = _common_entry(data, address)
            self._common_bytes += _ENTRY_BYTES + len(data)
            if self._common_bytes > MAX_KEPT_COMMON_BYTES:
                self._common.clear()
                self._common_bytes = 0
        return found


def _common_entry(data: bytes, address: int) -> CommonEntry:
    version = data[4]
    if data[:4] != b"\0\0\0\0" or version not in (1, 3):
        raise Malformed("it is no CIE of version 1 or 3")
    end = data.index(b"\0", 5) if b"\0" in data[5:] else len(data)
    augmentation = data[5:end]
    at = end + 1
    code_alignment, at = unsigned_leb(data, at)
    data_alignment, at = signed_leb(data, at)
    if version == 1:
        return_register, at = data[at], at + 1
    else:
        return_register, at = unsigned_leb(data, at)
    encoding, is_signal_frame = 0, False
    if augmentation.startswith(b"z"):
        size, at = unsigned_leb(data, at)
        encoding, is_signal_frame = _augmentation(augmentation[1:], data[: at + size], at, address)
        at += size
    elif augmentation:
        raise Malformed(f"augmentation {augmentation!r} is not known")
    if encoding & 0x70 not in (0, PC_RELATIVE) or encoding == OMIT:
        raise Malformed(f"addresses are encoded as {encoding:#x}")
    return CommonEntry(
        code_alignment,
        data_alignment,
        return_register,
        encoding,
        augmentation.startswith(b"z"),
        is_signal_frame,
        data[at:],
    )


def _augmentation(letters: bytes, data: bytes, at: int, address: int) -> tuple[int, bool]:
    """How addresses are encoded, and whether the frames are those of signals."""
    encoding, is_signal_frame = 0, False
    for letter in letters:
        if letter == ord("R"):
            encoding, at = data[at], at + 1
        elif letter == ord("L"):
            at += 1
        elif letter == ord("P"):
            personality, at = data[at], at + 1
            if personality & 0x70 == ALIGNED:
                at += -(address + at) % 8
                _, at = pointer(data, at, 0)
            elif personality != OMIT:
                _, at = pointer(data, at, personality & 0x0F)
        elif letter == ord("S"):
            is_signal_frame = True
        elif letter != ord("B"):  # arm64's key for pointer authentication has no data
            break  # what follows is not known; 'z' says where it ends
    return encoding, is_signal_frame
