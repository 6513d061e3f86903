# SPDX-License-Identifier: Apache-2.0
"""Symbols that a stripped file has elsewhere: within itself, compressed, or in a file of the same build."""

import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from .elf import NotUsable
from .elf_image import ElfImage, Memory, OpenFile
from .mapped_files import MappedFile, open_within

MAX_COMPRESSED_BYTES: Final = 8 << 20
MAX_DECOMPRESSED_BYTES: Final = 32 << 20
MAX_DICTIONARY_BYTES: Final = 16 << 20
MAX_CHECKED_BYTES: Final = 256 << 20
"""Of a file that is known by its checksum only."""

_LINK_BYTES: Final = 4096
_PIECE_BYTES: Final = 1 << 20
FOLDER: Final = PurePosixPath("/usr/lib/debug")


def embedded(image: ElfImage) -> ElfImage | None:
    """What .gnu_debugdata holds: an ELF file with the names of local functions, as some distributions add it."""
    section = image.sections.get(".gnu_debugdata")
    if section is None:
        return None
    compressed = image.contents(section, MAX_COMPRESSED_BYTES)
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY_BYTES)
        content = unpacker.decompress(compressed, MAX_DECOMPRESSED_BYTES)
        return ElfImage(Memory(content)) if unpacker.eof else None
    except (lzma.LZMAError, MemoryError, EOFError, NotUsable):
        return None


def separate(file: MappedFile) -> ElfImage | None:
    """The file with debug information that belongs to this one, in the root folder of a process that has mapped it."""
    if file.image is None or file.root is None:
        return None
    for path, checksum in _candidates(file.image, PurePosixPath(file.path)):
        with suppress(OSError, NotUsable, ValueError):
            source = OpenFile(open_within(file.root.fd, str(path)))
            found = ElfImage(source)
            if _belongs(found, source, file.image, checksum):
                return found
    return None


def _candidates(image: ElfImage, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, int | None]]:
    """Where such a file may be, and the checksum that it must have (GDB's manual, "Separate Debug Files")."""
    if len(image.build_id) > 1:
        digits = image.build_id.hex()
        yield FOLDER / ".build-id" / digits[:2] / f"{digits[2:]}.debug", None
    link = image.sections.get(".gnu_debuglink")
    content = image.contents(link, _LINK_BYTES) if link is not None else b""
    name, _, _ = content.partition(b"\0")
    place = (len(name) + 1 + 3) // 4 * 4
    if not name or b"/" in name or len(content) < place + 4 or not path.is_absolute():
        return
    checksum = int.from_bytes(content[place : place + 4], "little")
    file = os.fsdecode(name)
    for folder in (path.parent, path.parent / ".debug", FOLDER / path.parent.relative_to("/")):
        yield folder / file, checksum


def _belongs(found: ElfImage, source: OpenFile, image: ElfImage, checksum: int | None) -> bool:
    if found.machine != image.machine:
        return False
    if found.build_id or checksum is None:
        return found.build_id == image.build_id
    return _checksum(source) == checksum


def _checksum(source: OpenFile) -> int | None:
    """None for a file that is too large to be read for it."""
    checksum = 0
    for place in range(0, MAX_CHECKED_BYTES, _PIECE_BYTES):
        piece = source.read(place, _PIECE_BYTES)
        checksum = zlib.crc32(piece, checksum)
        if len(piece) < _PIECE_BYTES:
            return checksum
    return None
