# SPDX-License-Identifier: Apache-2.0
"""The values that flow from the tracer to everything that shows them: plain, immutable, without behaviour of their own.

The tracer names stacks and hands out a `Reading`; `gpuheap.heap` adds readings up, `gpuheap.profile` writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MemoryKind(StrEnum):
    """What an allocation occupies. Bytes of different kinds are never summed."""

    DEVICE = "device"


class FrameKind(StrEnum):
    PYTHON = "python"
    NATIVE = "native"
    UNKNOWN = "unknown"
    """Stands for frames that could not be had; the function name says why, in angle brackets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One function on a stack. `line` is the line being executed, 0 when unknown."""

    function: str
    file: str = ""
    line: int = 0
    kind: FrameKind = FrameKind.PYTHON


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
class Site:
    """Who allocates: process, thread and stack. Frames go from the thread's root to the driver call."""

    process: Process
    thread_id: int
    stack: tuple[Frame, ...]
    kind: MemoryKind = MemoryKind.DEVICE


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
class Reading:
    """All that the tracer knows at one moment.

    `exited` are the processes of `totals` that have ended and hold nothing any more.
    `failures` counts failed allocation calls by process and CUresult code.
    `losses` counts by reason what was lost or blurred; reasons that never occurred are there with 0.
    """

    taken_unix_ns: int
    totals: Mapping[Site, Totals]
    exited: frozenset[Process] = frozenset()
    failures: Mapping[tuple[Process, int], int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
