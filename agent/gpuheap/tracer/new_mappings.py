# SPDX-License-Identifier: Apache-2.0
"""The kernel's own word, at once, when any process maps an executable file: a library by dlopen, a program by exec.

perf_event_open(2): a counter that counts nothing, with PERF_RECORD_MMAP2 records on, one for each CPU. Polling
/proc would find a new library too late; this costs nothing while nothing is mapped.
"""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .errors import TracerUnavailable
from .mappings import FileId

PAGES: Final = 64
ONLINE: Final = Path("/sys/devices/system/cpu/online")
_PAGE: Final = mmap.PAGESIZE
_SYS_PERF_EVENT_OPEN: Final = 298  # x86-64
_CLOSE_ON_EXEC: Final = 8
_SOFTWARE: Final = 1
_DUMMY: Final = 9
# struct perf_event_attr, 64 bytes (PERF_ATTR_SIZE_VER0): type, size, config, period, sample_type, read_format, flags,
# wakeup_events, bp_type, bp_addr
_ATTRIBUTES: Final = "<IIQQQQQIIQ"
_FLAG_MMAP: Final = 1 << 8  # executable mappings
_FLAG_WATERMARK: Final = 1 << 14
_FLAG_MMAP2: Final = 1 << 23
_RECORD_LOST: Final = 2
_RECORD_MMAP2: Final = 10
_HEAD_AT: Final = 1024  # data_head and data_tail in struct perf_event_mmap_page
_HEADER: Final = struct.Struct("<IHH")
# pid, tid, address, length, page offset, major, minor, inode, inode generation, protection, flags; then the file's name
_MMAP2: Final = struct.Struct("<IIQQQIIQQII")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMapping:
    pid: int
    file: FileId
    path: str


class NewMappings:
    """Records of the whole machine since it was made. Raises TracerUnavailable without CAP_PERFMON."""

    def __init__(self) -> None:
        self._rings: list[tuple[int, mmap.mmap]] = []
        self.lost = 0
        for cpu in _online():
            fd = _open(cpu)
            self._rings.append((fd, mmap.mmap(fd, (1 + PAGES) * _PAGE)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def filenos(self) -> list[int]:
        return [fd for fd, _ in self._rings]

    def close(self) -> None:
        for fd, ring in self._rings:
            ring.close()
            os.close(fd)
        self._rings.clear()

    def taken(self) -> Iterator[NewMapping]:
        """All mappings since the last call."""
        for _, ring in self._rings:
            head, tail = struct.unpack_from("<QQ", ring, _HEAD_AT)
            while tail < head:
                kind, size, body = self._record(ring, tail)
                tail += size
                struct.pack_into("<Q", ring, _HEAD_AT + 8, tail)
                if kind == _RECORD_LOST:
                    self.lost += struct.unpack_from("<Q", body, 8)[0]
                elif kind == _RECORD_MMAP2:
                    pid, _, _, _, _, major, minor, inode, *_ = _MMAP2.unpack_from(body)
                    name = body[_MMAP2.size :].split(b"\0", 1)[0]
                    if name.startswith(b"/"):
                        yield NewMapping(
                            pid=pid, file=FileId(f"{major:02x}:{minor:02x}", inode), path=os.fsdecode(name)
                        )

    @staticmethod
    def _record(ring: mmap.mmap, at: int) -> tuple[int, int, bytes]:
        """(kind, size with header, body) of the record at `at`; records wrap around the end of the ring."""
        span = PAGES * _PAGE
        begin = at % span
        kind, _, size = _HEADER.unpack(_wrapped(ring, begin, _HEADER.size, span))
        return kind, size, _wrapped(ring, begin, size, span)[_HEADER.size :]


def _wrapped(ring: mmap.mmap, begin: int, size: int, span: int) -> bytes:
    first = min(size, span - begin)
    return ring[_PAGE + begin : _PAGE + begin + first] + ring[_PAGE : _PAGE + size - first]


def _online() -> list[int]:
    """The CPUs of a list such as `0-3,8`."""
    spans = [part.partition("-") for part in ONLINE.read_text().strip().split(",")]
    return [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]


def _open(cpu: int) -> int:
    flags = _FLAG_MMAP | _FLAG_MMAP2 | _FLAG_WATERMARK
    attributes = struct.pack(_ATTRIBUTES, _SOFTWARE, 64, _DUMMY, 0, 0, 0, flags, 1, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(_SYS_PERF_EVENT_OPEN, attributes, -1, cpu, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
    if fd < 0:
        code = ctypes.get_errno()
        hint = (
            "run as root, or with CAP_PERFMON"
            if code in (errno.EACCES, errno.EPERM)
            else "is the CPU online?"
        )
        raise TracerUnavailable(f"new mappings cannot be watched on CPU {cpu}: {os.strerror(code)}; {hint}")
    return fd
