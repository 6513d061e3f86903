# SPDX-License-Identifier: Apache-2.0
"""Which files a process has mapped: /proc/PID/maps, and the kernel's records of new executable mappings."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class FileId(NamedTuple):
    """What makes two paths the same file. `device` is `major:minor` as /proc writes it."""

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
        try:
            fd = os.open(f"/proc/{pid}/map_files/{self.start:x}-{self.end:x}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            fd = os.open(f"/proc/{pid}/root{self.path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.fstat(fd).st_ino != self.file.inode:
                raise FileNotFoundError(errno.ENOENT, "another file has its name now", self.path)
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


def file_id(path: Path) -> FileId:
    """Of a file that may not be mapped. Raises OSError."""
    stat = path.stat()
    return FileId(f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}", stat.st_ino)


def mappings(pid: int) -> list[Mapping]:
    """The file mappings of a process; none when it is gone or must not be looked at."""
    try:
        content = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except OSError:
        return []
    return [found for line in content.splitlines() if (found := _parsed(line)) is not None]


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
