# SPDX-License-Identifier: Apache-2.0
"""The sections of a file that hold debug information (DWARF), read piece by piece, compressed ones too.

What they mean is for debug_units.py and line_programs.py to say. Nothing is kept of them here but some places in
compressed ones, from which reading can go on.
"""

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

from .dwarf import Malformed
from .elf_image import SHT_NOBITS, ElfImage, Memory, Source
from .frame_rules import Exhausted

MAX_INFLATED_BYTES: Final = 1 << 30
"""Of a compressed section."""

MAX_WORK: Final = 128 << 20
"""Bytes of debug information that are looked at of one file, again and again if need be: some seconds' work."""

MAX_WORK_AT_ONCE: Final = 192 << 20
"""The same of all files together."""

WORK_A_SECOND: Final = 8 << 20

MAX_TEXT_BYTES: Final = 4096
MAX_WHOLE_BYTES: Final = 512 << 10
"""Of a compressed section that is kept when it is decompressed."""

_PLACES: Final = 16
"""In a larger one, from which reading can go on."""

_STATE_BYTES: Final = 44 << 10
"""What zlib keeps for each: 32 KiB of what was decompressed, and its tables."""

_MIN_STEP: Final = 512 << 10
_PIECE: Final = 64 << 10
_INFLATED_IS_LESS_WORK: Final = 64
_COMPRESSION: Final = struct.Struct("<IIQQ")  # Elf64_Chdr: type, reserved, size, alignment
_ZLIB: Final = 1
_NAMES: Final = {_ZLIB: "zlib", 2: "zstd"}


class Allowance:
    """What may be done for all files together: so much at once, and more as time goes on."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left: float = MAX_WORK_AT_ONCE
        self._at = now()

    def take(self, amount: int) -> bool:
        """Whether there was as much."""
        now = self._now()
        self._left = min(MAX_WORK_AT_ONCE, self._left + (now - self._at) * WORK_A_SECOND)
        self._at = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class Work:
    """What may still be done for one file."""

    def __init__(self, limit: int = MAX_WORK, allowance: Allowance | None = None) -> None:
        self._left = limit
        self._allowance = allowance

    def spend(self, amount: int) -> None:
        """Raises Exhausted."""
        self._left -= amount
        if self._left < 0:
            raise Exhausted("a file's debug information takes too long to read")
        if self._allowance is not None and not self._allowance.take(amount):
            raise Exhausted("the debug information of all files takes too long to read")


class DebugSections:
    """Of one file."""

    def __init__(self, image: ElfImage, work: Work | None = None) -> None:
        self.work = work or Work()
        self._image = image
        self._opened: dict[str, tuple[Source, int, int]] = {}
        self._inflated: list[_Inflated] = []
        self._whole_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """About how much memory is in use for what is compressed."""
        return self._whole_bytes + sum(inflated.kept_bytes for inflated in self._inflated)

    def __contains__(self, name: str) -> bool:
        section = self._image.sections.get(name)
        return section is not None and section.kind != SHT_NOBITS and section.size > 0

    def size(self, name: str) -> int:
        """In bytes, 0 for one that is not there. Raises Malformed."""
        return self._section(name)[2]

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Fewer bytes at its end. Raises Malformed, Exhausted."""
        source, begin, whole = self._section(name)
        return source.read(begin + offset, min(size, whole - offset)) if 0 <= offset < whole else b""

    def piece(self, name: str, offset: int, size: int) -> bytes:
        """As many bytes as asked. Raises Malformed where there are fewer, Exhausted."""
        found = self.read(name, offset, size)
        if len(found) < size:
            raise Malformed(f"{name} ends before {offset:#x} + {size:#x}")
        return found

    def text(self, name: str, offset: int) -> bytes:
        """The string there, without what is beyond a limit. Raises Malformed, Exhausted."""
        for size in (256, MAX_TEXT_BYTES):
            text, end, _ = self.read(name, offset, size).partition(b"\0")
            if end:
                break
        return text

    def _section(self, name: str) -> tuple[Source, int, int]:
        """Where it is to be read, from which place on, and its size."""
        known = self._opened.get(name)
        if known is None:
            known = self._opened[name] = self._open(name)
        return known

    def _open(self, name: str) -> tuple[Source, int, int]:
        section = self._image.sections.get(name)
        source = self._image.source
        if section is None or section.kind == SHT_NOBITS:
            return source, 0, 0
        if not section.compressed:
            return source, section.offset, section.size
        header = source.read(section.offset, _COMPRESSION.size)
        if len(header) < _COMPRESSION.size or section.size < _COMPRESSION.size:
            raise Malformed(f"{name} is compressed, and too short for it")
        kind, _, size, _ = _COMPRESSION.unpack(header)
        if kind != _ZLIB:
            raise Malformed(f"{name} is compressed by {_NAMES.get(kind, kind)}; only zlib can be read")
        if size > MAX_INFLATED_BYTES:
            raise Exhausted(f"{name} has {size} bytes when it is decompressed; {MAX_INFLATED_BYTES} may be")
        begin = section.offset + _COMPRESSION.size
        inflated = _Inflated(source, begin, section.size - _COMPRESSION.size, size, self.work)
        if size > MAX_WHOLE_BYTES:
            self._inflated.append(inflated)
            return inflated, 0, size
        self._whole_bytes += size
        return Memory(inflated.read(0, size)), 0, size


class _Inflated:
    """What is compressed in a part of a file. Reading goes forwards from the last of some places that are kept."""

    def __init__(self, source: Source, offset: int, size: int, inflated: int, work: Work) -> None:
        self._source = source
        self._end = offset + size
        self._step = max(_MIN_STEP, inflated // _PLACES)
        self._work = work
        self._inflater: Any = zlib.decompressobj()
        self._next = offset
        self._piece = b""
        self._at = 0
        """Of the piece, in what is decompressed."""
        self._kept: list[tuple[int, Any, int]] = [(0, self._inflater.copy(), offset)]

    @property
    def kept_bytes(self) -> int:
        return (len(self._kept) + 1) * _STATE_BYTES + len(self._piece)

    def read(self, offset: int, size: int) -> bytes:
        """Raises Malformed, Exhausted."""
        if offset < self._at:
            self._return_to(offset)
        found = bytearray()
        while len(found) < size:
            behind = self._at + len(self._piece)
            wanted = offset + len(found)
            if wanted < behind:
                found += self._piece[wanted - self._at : offset + size - self._at]
            elif not self._go_on():
                break
        return bytes(found)

    def _return_to(self, offset: int) -> None:
        self._at, inflater, self._next = max(
            (kept for kept in self._kept if kept[0] <= offset), key=lambda kept: kept[0]
        )
        self._inflater = inflater.copy()
        self._piece = b""

    def _go_on(self) -> bool:
        """The next piece; False at the end."""
        at = self._at + len(self._piece)
        if at - self._kept[-1][0] >= self._step:
            self._kept.append((at, self._inflater.copy(), self._next))
        given = self._inflater.unconsumed_tail
        if not given:
            given = self._source.read(self._next, min(_PIECE, self._end - self._next))
            self._next += len(given)
        try:
            piece = self._inflater.decompress(given, _PIECE)
        except zlib.error as error:
            raise Malformed(f"what is compressed cannot be decompressed: {error}") from None
        if not piece and not given:
            return False
        self._work.spend(1 + (len(piece) + len(given)) // _INFLATED_IS_LESS_WORK)
        self._piece, self._at = piece, at
        return True
