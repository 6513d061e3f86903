# SPDX-License-Identifier: Apache-2.0
"""What lies where in one process: its mappings, with the files behind its code held open.

It belongs to one process image: the descriptors of /proc/PID/maps and mem that are kept show nothing once the process
has ended or runs another program, and then what was read before stays.
"""

import ctypes
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from .elf_image import OpenFile
from .frame_rules import Rules
from .mapped_files import MappedFile, MappedFiles, TooManyOpenFiles, open_regular, own_vdso

MAX_MAPS_BYTES: Final = 16 << 20
"""65,530 mappings, the kernel's limit unless it was raised, with long names."""

MAX_KEPT_RULES: Final = 4096
MAX_KNOWN_GAPS: Final = 4096
_PAGE_BITS: Final = 12
_WRITABLE: Final = mmap.PROT_READ | mmap.PROT_WRITE
"""In private: ctypes tells only the address of what it could write to."""

VDSO: Final = "[vdso]"
UPROBES: Final = "[uprobes]"


class NoFile(StrEnum):
    """Why there is no file for a mapping."""

    ANONYMOUS = "memory without a file"
    GONE = "its file could not be opened"
    TOO_MANY = "too many files are open"


@dataclass(frozen=True, slots=True)
class Region:
    """One mapping."""

    begin: int
    end: int
    executable: bool
    offset: int
    device: str
    """As /proc shows it: major:minor."""
    inode: int
    path: str
    """As /proc shows it, without ` (deleted)`; empty for anonymous memory, [vdso] and the like for the kernel's."""
    file: MappedFile | NoFile = field(compare=False, default=NoFile.ANONYMOUS)

    def address_as_linked(self, address: int) -> int | None:
        """Where the file says that this place is; None if it says nothing."""
        if isinstance(self.file, NoFile) or self.file.image is None:
            return None
        return self.file.image.address_at(address - self.begin + self.offset)


class MemoryMap:
    """Of a process that runs, or did when this was made."""

    def __init__(self, pid: int, files: MappedFiles | None = None, before: "MemoryMap | None" = None) -> None:
        """`before`: what it had mapped when it was looked at before, or the process that it was forked from. It
        stands for what can no longer be seen.
        """
        self._pid = pid
        self._files = files if files is not None else MappedFiles()
        self._regions: list[Region] = [] if before is None else before._regions
        self._begins: list[int] = [] if before is None else before._begins
        self._gaps: set[int] = set()
        self._doubted: list[tuple[int, int]] = [] if before is None else [*before._doubted]
        self.rules: dict[int, Rules] = {}
        """Of code that was met on a stack, by its address here, as long as nothing else is mapped there."""
        self._maps = _opened(f"/proc/{pid}/maps", os.O_RDONLY)
        self._root = _opened(f"/proc/{pid}/root", os.O_PATH)
        self._memory = _opened(f"/proc/{pid}/mem", os.O_RDONLY)
        self.refresh()

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(self._regions)

    def find(self, address: int) -> Region | None:
        """The mapping that holds the address, when they were last read."""
        index = bisect_right(self._begins, address) - 1
        if index < 0:
            return None
        region = self._regions[index]
        return region if address < region.end else None

    def find_anew(self, address: int) -> Region | None:
        """The same, after a fresh look if the address was in no mapping before; once for each page of a gap."""
        region = self.find(address)
        page = address >> _PAGE_BITS
        if region is not None or page in self._gaps:
            return region
        if self.refresh():
            region = self.find(address)
        if region is None:
            if len(self._gaps) >= MAX_KNOWN_GAPS:
                self._gaps.clear()
            self._gaps.add(page)
        return region

    def code(self, address: int, size: int) -> bytes:
        """Code that no file describes, as it is now; none of it when the process is gone."""
        return self._memory.read(address, size) if self._memory is not None else b""

    def keep(self, address: int, rules: Rules) -> None:
        """For the next stack with this address."""
        if len(self.rules) >= MAX_KEPT_RULES:
            self.rules.clear()
        self.rules[address] = rules

    def doubt(self, begin: int, end: int) -> None:
        """Something was mapped there: what is known of it is not taken for right when the mappings are read again.

        It may be another file with the number, and even the name, of the one that was there.
        """
        self._doubted.append((begin, end))

    def refresh(self) -> bool:
        """Reads the mappings again: for when the process has mapped something. Whether anything has changed."""
        known = {region: region for region in self._regions if not self._is_doubted(region)}
        found = [known.get(region) or self._with_file(region) for region in self._read()]
        if not found or (found == self._regions and not self._doubted):
            return False
        if self._regions and self._is_gone():
            return False
        self._doubted.clear()
        self._regions = sorted(found, key=lambda region: region.begin)
        self._begins = [region.begin for region in self._regions]
        self._gaps.clear()
        self.rules.clear()
        return True

    def _is_gone(self) -> bool:
        """What was read of its mappings may then be a part."""
        return self._maps is None or not self._maps.read(0, 1)

    def _is_doubted(self, region: Region) -> bool:
        return region.executable and any(
            region.begin < end and begin < region.end for begin, end in self._doubted
        )

    def _read(self) -> Iterator[Region]:
        if self._maps is None:
            return
        pieces, size = [], 0
        while size < MAX_MAPS_BYTES and (piece := self._maps.read(size, 1 << 16)):
            pieces.append(piece)
            size += len(piece)
        # Names may hold all but line feeds.
        for line in os.fsdecode(b"".join(pieces)).split("\n"):
            region = _parsed(line)
            if region is not None:
                yield region

    def _with_file(self, region: Region) -> Region:
        if not region.executable:
            return region
        found: MappedFile | NoFile = NoFile.ANONYMOUS
        if region.path == VDSO:
            found = _vdso(region.end - region.begin) or NoFile.ANONYMOUS
        elif region.inode:
            try:
                found = self._files.opened(self._open(region), region.path, self._root)
            except TooManyOpenFiles:
                found = NoFile.TOO_MANY
            except OSError:
                found = NoFile.GONE
        return Region(
            region.begin, region.end, True, region.offset, region.device, region.inode, region.path, found
        )

    def _open(self, region: Region) -> int:
        """Raises OSError.

        `map_files` leads to the very file, also when another one has taken its name; without the right to use it, the
        path as the process sees it does, in its own mount namespace.
        """
        exact = f"/proc/{self._pid}/map_files/{region.begin:x}-{region.end:x}"
        by_name = f"/proc/{self._pid}/root{region.path}"
        for path in (exact, by_name):
            with suppress(OSError):
                fd = open_regular(lambda flags, path=path: os.open(path, flags))  # type: ignore[misc]
                # The process may have mapped another file there by now, or have ended and left its pid to another.
                mapped = region.device, region.inode
                if _by_status(fd) == mapped or _shown_as(fd) == mapped:
                    return fd
                os.close(fd)
        raise FileNotFoundError(region.path)


def _opened(path: str, flags: int) -> OpenFile | None:
    """None if the process is gone, or the agent lacks the right."""
    try:
        return OpenFile(os.open(path, flags | os.O_CLOEXEC))
    except OSError:
        return None


@cache
def _own_vdso() -> MappedFile | None:
    return own_vdso()


def _vdso(size: int) -> MappedFile | None:
    """None for one that is not ours: that of a 32-bit process."""
    vdso = _own_vdso()
    return vdso if vdso is not None and len(vdso.source.read(0, size + 1)) == size else None


def _by_status(fd: int) -> tuple[str, int]:
    """Device and inode as fstat says; a mapping can show others, on overlayfs and btrfs."""
    status = os.fstat(fd)
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino


def _shown_as(fd: int) -> tuple[str, int] | None:
    """Device and inode as a mapping of this file shows them."""
    with suppress(OSError, ValueError), mmap.mmap(fd, 1, mmap.MAP_PRIVATE, _WRITABLE) as mapped:
        begin = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n"):
            region = _parsed(line)
            if region is not None and region.begin == begin:
                return region.device, region.inode
    return None


def _parsed(line: str) -> Region | None:
    """One line of /proc/PID/maps."""
    fields = line.rstrip("\n").split(maxsplit=5)
    if len(fields) < 5:
        return None
    begin, _, end = fields[0].partition("-")
    return Region(
        begin=int(begin, 16),
        end=int(end, 16),
        executable="x" in fields[1],
        offset=int(fields[2], 16),
        device=fields[3],
        inode=int(fields[4]),
        path=fields[5].removesuffix(" (deleted)") if len(fields) > 5 else "",
    )
