# SPDX-License-Identifier: Apache-2.0
"""The values that flow from the tracer to everything that shows them: plain, immutable, without behaviour of their own.

The tracer names stacks and hands out a `Reading`; `gpuheap.heap` adds readings up, `gpuheap.profile` writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class MemoryKind(StrEnum):
    """What an allocation occupies. Bytes of different kinds are never summed."""

    DEVICE = "device"
    """Memory of a GPU: linear, pitched, stream-ordered (as requested), and physical memory of a VMM handle."""
    MANAGED = "managed"
    """Migrates between host and GPU: how much of it is where, nobody says."""
    PINNED_HOST = "pinned_host"
    """Host memory that the driver allocated or locked."""
    ARRAY = "array"
    """CUDA arrays. Estimated from the descriptor: the layout is the driver's secret."""
    GRAPH = "graph"
    """What the allocation nodes of existing graphs ask for; it is there while the graph runs."""
    IMPORTED = "imported"
    """Memory that another process, or another API, owns and is charged with; 0 bytes where no size is known."""


class FrameKind(StrEnum):
    PYTHON = "python"
    NATIVE = "native"
    UNKNOWN = "unknown"
    """Stands for frames that could not be had; the function name says why, in angle brackets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One function on a stack. `line` is the line of `file` being executed, 0 when unknown.

    Of a native function, `file` is its source, and `library` the file that its code is in; where its source is not
    known, `file` is that one, and `library` empty. `build_id` is its code's, in hexadecimal digits. It tells no two
    frames apart: a function is the same one in another build.
    """

    function: str
    file: str = ""
    line: int = 0
    kind: FrameKind = FrameKind.PYTHON
    library: str = ""
    build_id: str = field(default="", compare=False)

    @property
    def code_file(self) -> str:
        """The file that a native function's code is in."""
        return self.library or self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process image: a pid that is reused, and a program that execs, are other processes.

    `start_ns` is the start in nanoseconds since boot as the kernel keeps it; `generation` counts its execs.
    """

    pid: int
    start_ns: int
    name: str
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where memory is. `ordinal` is the process's own number for the GPU, None when unknown.

    `uuid` is the GPU's or MIG slice's (`GPU-...`, `MIG-...`), empty when it could not be found out.
    """

    ordinal: int | None = None
    uuid: str = ""

    @property
    def text(self) -> str:
        """`0`, `1`, ..., `host`, or `unknown`."""
        if self.ordinal is None:
            return "unknown"
        return "host" if self == HOST else str(self.ordinal)


UNKNOWN_DEVICE: Final = Device()
HOST: Final = Device(ordinal=-1)
"""Of memory that is on no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Who allocates: process, thread, stack and driver function, and what: kind and device.

    Frames go from the thread's root to the caller of `call`.
    """

    process: Process
    thread_id: int
    stack: tuple[Frame, ...]
    kind: MemoryKind = MemoryKind.DEVICE
    device: Device = UNKNOWN_DEVICE
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Bytes and objects since tracing began. What was freed includes what the end of a process released.

    `released_at_exit_*` is that part alone: what the process (image) still held when it exited, was killed or exec'ed.
    """

    allocated_bytes: int = 0
    allocated_objects: int = 0
    freed_bytes: int = 0
    freed_objects: int = 0
    released_at_exit_bytes: int = 0
    released_at_exit_objects: int = 0

    @property
    def in_use_bytes(self) -> int:
        return self.allocated_bytes - self.freed_bytes

    @property
    def in_use_objects(self) -> int:
        return self.allocated_objects - self.freed_objects

    @property
    def held_bytes(self) -> int:
        """In use now; of a process that has ended, in use when it ended."""
        return self.in_use_bytes + self.released_at_exit_bytes

    @property
    def held_objects(self) -> int:
        return self.in_use_objects + self.released_at_exit_objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a site held at some moment."""

    bytes: int
    objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """An allocation that failed with CUDA_ERROR_OUT_OF_MEMORY.

    `holdings` is what each site of the process held at that moment. `exact` is False when a site changed and another
    such failure came before the first was looked at: then it has the value at the later one.
    """

    site: Site
    asked_bytes: int
    at_unix_ns: int
    holdings: Mapping[Site, Holding]
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A stream-ordered memory pool. `address` is its handle, 0 for the device's default pool."""

    process: Process
    device: Device
    address: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTotals:
    """`in_use_bytes` is part of the DEVICE totals; `retained_bytes` is not: freed, and kept by the pool for later.

    Retained is what stays after the next synchronisation, from the pool's highest use since it was last trimmed and its
    release threshold; what the program itself asked the driver about corrects it.
    """

    in_use_bytes: int
    retained_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that the tracer knows at one moment.

    `exited` are the processes of `totals` that have ended and hold nothing any more.
    `joined_late` are those that ran before tracing began: what they allocated before is in no figure.
    `failures` counts failed allocation calls by process and CUresult code.
    `out_of_memory` are the last failures for want of memory, oldest first.
    `losses` counts by reason what was lost or blurred; reasons that never occurred are there with 0.
    """

    taken_unix_ns: int
    totals: Mapping[Site, Totals]
    exited: frozenset[Process] = frozenset()
    joined_late: frozenset[Process] = frozenset()
    pools: Mapping[Pool, PoolTotals] = field(default_factory=dict)
    out_of_memory: tuple[OutOfMemory, ...] = ()
    failures: Mapping[tuple[Process, int], int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
