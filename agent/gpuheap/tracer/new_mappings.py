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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .errors import TracerUnavailable
from .mappings import FileId, Mapping

PAGES: Final = 64
ONLINE: Final = Path("/sys/devices/system/cpu/online")
_PAGE: Final = mmap.PAGESIZE
SPAN: Final = PAGES * _PAGE
_SYS_PERF_EVENT_OPEN: Final = 298  # x86-64
_CLOSE_ON_EXEC: Final = 8
_SOFTWARE: Final = 1
_DUMMY: Final = 9
# struct perf_event_attr, 96 bytes (PERF_ATTR_SIZE_VER3): type, size, config, period, sample_type, read_format, flags,
# wakeup_events, bp_type, bp_addr, bp_len, branch_sample_type, sample_regs_user, sample_stack_user, clockid
_ATTRIBUTES: Final = "<IIQQQQQIIQQQQIi"
_SAMPLE_TIME: Final = 1 << 2
_FLAG_MMAP: Final = 1 << 8  # executable mappings
_FLAG_WATERMARK: Final = 1 << 14
_FLAG_SAMPLE_ID_ALL: Final = 1 << 18  # the time, behind each record
_FLAG_MMAP2: Final = 1 << 23
_FLAG_USE_CLOCKID: Final = 1 << 25
_RECORD_LOST: Final = 2
_RECORD_MMAP2: Final = 10
_LARGEST: Final = 4096 + 128  # bytes of a record: the path of a file, and what stands before it
_HEAD_AT: Final = 1024  # data_head and data_tail in struct perf_event_mmap_page
_HEADER: Final = struct.Struct("<IHH")
# pid, tid, address, length, page offset, major, minor, inode, inode generation, protection, flags; then the file's
# name, and the time
_MMAP2: Final = struct.Struct("<IIQQQIIQQII")
_TIME: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMapping:
    """`pid` is that of the reader's pid namespace. The mapping's path is empty where no file is behind it.

    `time_ns` is of the clock that only goes forward (CLOCK_MONOTONIC).
    """

    pid: int
    mapping: Mapping
    time_ns: int

    @property
    def file(self) -> FileId:
        return self.mapping.file

    @property
    def path(self) -> str:
        return self.mapping.path


class NewMappings:
    """Records of the whole machine since it was made. Raises TracerUnavailable without CAP_PERFMON."""

    def __init__(self) -> None:
        self._rings: list[_Ring] = []
        self.lost = 0
        """Records that the kernel says it dropped; it says so with the next one that it can write."""
        self.times_full = 0
        """Times that a ring was found full, so that records are likely to be missing."""
        for cpu in _online():
            self._rings.append(_Ring(_open(cpu)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def filenos(self) -> list[int]:
        return [ring.fd for ring in self._rings]

    def close(self) -> None:
        for ring in self._rings:
            ring.close()
        self._rings.clear()

    def taken(self) -> Iterator[NewMapping]:
        """All mappings since the last call."""
        for ring in self._rings:
            self.times_full += ring.is_full
            for kind, body in ring.records():
                if kind == _RECORD_LOST:
                    self.lost += struct.unpack_from("<Q", body, 8)[0]
                elif kind == _RECORD_MMAP2 and (new := _new_mapping(body)) is not None:
                    yield new


class _Ring:
    """What the kernel writes for one perf event: records from `tail` to `head`, both of which only grow."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, (1 + PAGES) * _PAGE)
        # As whole words: the kernel must never see half of a new tail.
        self._head = ctypes.c_uint64.from_buffer(self._memory, _HEAD_AT)
        self._tail = ctypes.c_uint64.from_buffer(self._memory, _HEAD_AT + 8)

    def close(self) -> None:
        del self._head, self._tail
        self._memory.close()
        os.close(self.fd)

    @property
    def is_full(self) -> bool:
        return self._head.value - self._tail.value > SPAN - _LARGEST

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Kind and body of each. A ring that makes no sense is given up to its end, as one that was full."""
        head, tail = self._head.value, self._tail.value
        while tail < head:
            kind, _, size = _HEADER.unpack(self._at(tail, _HEADER.size))
            if not _HEADER.size <= size <= head - tail <= SPAN:
                self._tail.value = head
                return
            body = self._at(tail, size)[_HEADER.size :]
            tail += size
            self._tail.value = tail
            yield kind, body

    def _at(self, place: int, size: int) -> bytes:
        begin = place % SPAN
        first = min(size, SPAN - begin)
        return (
            self._memory[_PAGE + begin : _PAGE + begin + first] + self._memory[_PAGE : _PAGE + size - first]
        )


def _new_mapping(body: bytes) -> NewMapping | None:
    """None for the kernel's own pages in processes."""
    name = body[_MMAP2.size : -_TIME.size].split(b"\0", 1)[0]
    if not name.startswith(b"/"):
        return None
    pid, _, start, length, offset, major, minor, inode, *_ = _MMAP2.unpack_from(body)
    mapping = Mapping(
        start=start,
        end=start + length,
        offset=offset,
        executable=True,
        file=FileId(f"{major:02x}:{minor:02x}", inode),
        path="" if name.startswith(b"//") else os.fsdecode(name),  # //anon
    )
    (time_ns,) = _TIME.unpack(body[-_TIME.size :])
    return NewMapping(pid=pid, mapping=mapping, time_ns=time_ns)


def _online() -> list[int]:
    """The CPUs of a list such as `0-3,8`."""
    spans = [part.partition("-") for part in ONLINE.read_text().strip().split(",")]
    return [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]


def _open(cpu: int) -> int:
    flags = _FLAG_MMAP | _FLAG_MMAP2 | _FLAG_WATERMARK | _FLAG_SAMPLE_ID_ALL | _FLAG_USE_CLOCKID
    size, clock = struct.calcsize(_ATTRIBUTES), time.CLOCK_MONOTONIC
    attributes = struct.pack(
        _ATTRIBUTES, _SOFTWARE, size, _DUMMY, 0, _SAMPLE_TIME, 0, flags, 1, 0, 0, 0, 0, 0, 0, clock
    )
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
