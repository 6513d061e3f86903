# SPDX-License-Identifier: Apache-2.0
"""Which files a process has mapped: /proc/PID/maps, and what identifies a file there."""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class FileId(NamedTuple):
    """A file as the kernel shows it for a mapping: `major:minor` as /proc writes it, and the inode.

    stat(2) can say otherwise: overlayfs over several file systems and btrfs give it device numbers that no mapping
    shows. One file has several of these when several overlays hold it: see `same_file`.
    """

    device: str
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One mapping of a file, executable or not."""

    start: int
    end: int
    offset: int
    executable: bool
    file: FileId
    path: str

    @contextmanager
    def opened(self, pid: int) -> Iterator[Path]:
        """A path to the mapped file that holds until the end of the block, whatever becomes of the process.

        `map_files` leads to the very file, also when another one has taken its name; without the right to use it, the
        path as the process sees it does, in its own mount namespace. Raises OSError when the process is gone.
        """
        by_name = False
        try:
            fd = os.open(f"/proc/{pid}/map_files/{self.start:x}-{self.end:x}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            fd = os.open(f"/proc/{pid}/root{self.path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            by_name = True
        try:
            path = Path(f"/proc/self/fd/{fd}")
            if by_name and file_id(path) != self.file:
                raise FileNotFoundError(errno.ENOENT, "another file has its name now", self.path)
            yield path
        finally:
            os.close(fd)


def file_id(path: Path) -> FileId:
    """Of a file that nobody may have mapped: it is mapped here for a moment. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = min(os.fstat(fd).st_size, mmap.PAGESIZE)
        if not size:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), str(path))
        # Writable, in private, as ctypes tells only the address of what it could write to.
        with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            for mapping in mappings(os.getpid()):
                if mapping.start == start:
                    return mapping.file
    finally:
        os.close(fd)
    raise OSError(errno.EIO, "its mapping cannot be found", str(path))


def mappings(pid: int) -> list[Mapping]:
    """The file mappings of a process; none when it is gone or must not be looked at."""
    try:
        content = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())  # names may hold all but line feeds
    except OSError:
        return []
    return [found for line in content.split("\n") if (found := _parsed(line)) is not None]


def processes() -> Iterator[int]:
    """The pids of this moment."""
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _parsed(line: str) -> Mapping | None:
    fields = line.split(maxsplit=5)
    if len(fields) < 6 or fields[4] == "0" or not fields[5].startswith("/"):
        return None
    start, _, end = fields[0].partition("-")
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        offset=int(fields[2], 16),
        executable="x" in fields[1],
        file=FileId(fields[3], int(fields[4])),
        path=fields[5].removesuffix(" (deleted)"),
    )
