# SPDX-License-Identifier: Apache-2.0
"""Whether a file is one that already has probes, seen under another identity.

Each overlay that holds a file (each container of an image, for instance) shows it with a device of its own, while
probes belong to the file beneath: set once for each identity, they would count each call as often. The kernel does
not say which file is beneath, but it shows the probes themselves: in a fresh mapping of a probed file the probed
places hold breakpoints, which the file itself does not.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

OVERLAYFS: Final = 0x794C7630  # statfs(2)
_STATFS_BYTES: Final = 256  # struct statfs is smaller; it begins with f_type, a long
_INODE_BITS: Final = 48
"""overlayfs may put the number of a layer into the bits above (`xino`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is the same of a file wherever it is seen, and not enough to tell it from its copies."""

    inode: int
    size: int
    modified_ns: int
    on_overlay: bool

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises OSError."""
        status = path.stat()
        buffer = ctypes.create_string_buffer(_STATFS_BYTES)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.statfs(os.fsencode(path), buffer):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
        kind = ctypes.c_long.from_buffer(buffer).value
        return cls(
            inode=status.st_ino & ((1 << _INODE_BITS) - 1),
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            on_overlay=kind == OVERLAYFS,
        )

    def may_be(self, other: "Facts") -> bool:
        """Outside overlays a file has one identity."""
        return (self.inode, self.size, self.modified_ns) == (
            other.inode,
            other.size,
            other.modified_ns,
        ) and (self.on_overlay or other.on_overlay)


def has_breakpoints(path: Path, offsets: Iterable[int]) -> bool:
    """Whether probes, of whatever tracer, are at all these places of the file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return all(_has_breakpoint(fd, offset) for offset in offsets)
    finally:
        os.close(fd)


def _has_breakpoint(fd: int, offset: int) -> bool:
    """A private mapping without writing is what probes are set in, executable or not."""
    page = offset // mmap.PAGESIZE * mmap.PAGESIZE
    with mmap.mmap(fd, offset - page + 1, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=page) as mapped:
        return mapped[offset - page :] != os.pread(fd, 1, offset)
