# SPDX-License-Identifier: Apache-2.0
"""The tracer: loads the kernel side, keeps the probes up to date, and hands out readings."""

import select
import time
from collections.abc import Mapping
from ctypes import c_uint64
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gpuheap.heap.model import Process, Reading
from gpuheap.heap.model import Site as NamedSite
from gpuheap.heap.model import Totals as NamedTotals

from . import abi, libbpf
from .images import Images, ancestry
from .names import Names
from .new_mappings import NewMappings
from .probes import Probes

OBJECT: Final = Path(__file__).with_name("gpuheap.bpf.o")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracerOptions:
    """`pids`: readings hold these processes and what they start; None: all.

    `commands`: programs about to be started, by path or by name on PATH; their interpreters are probed beforehand.
    `live_allocations`: how many allocations can be in use at a time before their frees go unnoticed (and counted so).
    """

    pids: frozenset[int] | None = None
    commands: tuple[str, ...] = ()
    live_allocations: int = 1 << 20


class Tracer:
    """Accounts for the GPU memory of this machine's processes from its construction until `close`.

    Raises TracerError when this machine or this user cannot trace. Not for use by several threads.
    """

    def __init__(self, options: TracerOptions | None = None) -> None:
        self._options = options or TracerOptions()
        self._released: dict[tuple[int, int, int], list[int]] = {}
        self._family = set(self._options.pids or ())
        self._unsupported: dict[int, str] = {}
        self._without_python = 0
        self._unswept = False
        self._bpf = libbpf.BpfObject(OBJECT, {"live": self._options.live_allocations})
        try:
            self._start()
        except BaseException:
            self._bpf.close()
            raise

    def _start(self) -> None:
        for program in ("process_forks", "process_execs", "thread_exits"):
            self._bpf.attach(program)
        self._fds = {
            name: self._bpf.map_fd(name) for name in ("live", "sites", "failures", "losses", "events")
        }
        self._images = Images()
        self._names = Names(self._bpf.map_fd("stacks"))
        self._probes = Probes(self._bpf)
        self._events = libbpf.RingBuffer(self._fds["events"], self._receive)
        self._mappings = NewMappings()  # before the processes are looked at: none falls between
        self._probes.set_initially(self._options.commands)
        self._poll = select.poll()
        for fd in (self._events.fileno, *self._mappings.filenos):
            self._poll.register(fd, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the probes and everything in the kernel."""
        self._mappings.close()
        self._events.close()
        self._bpf.close()

    def poll(self, timeout_seconds: float) -> None:
        """Wait for news at most so long, and act on what is there: probe new files, note processes, name code."""
        self._poll.poll(max(0.0, timeout_seconds) * 1000)
        self._catch_up()

    def read(self) -> Reading:
        """Everything since tracing began, without what was forgotten."""
        self._catch_up()
        totals = list(libbpf.items(self._fds["sites"], abi.Site, abi.Totals))
        self._catch_up()  # the names of what has just been read
        self._release_ended()
        return Reading(
            taken_unix_ns=time.time_ns(),
            totals=self._named(totals),
            exited=frozenset(process for process in self._images.exited() if self._wanted(process)),
            failures=self._failures(),
            losses=self._losses(),
        )

    def forget(self, processes: frozenset[Process]) -> None:
        """Drop ended processes; later readings do not hold them."""
        images = self._images.ids_of(processes) & self._images.ended
        keys = set()
        for site, _ in list(libbpf.items(self._fds["sites"], abi.Site, abi.Totals)):
            if site.image in images:
                keys.add(site.stack)
                libbpf.delete(self._fds["sites"], site)
        for failure, _ in list(libbpf.items(self._fds["failures"], abi.FailureKey, c_uint64)):  # type: ignore[type-var]
            if failure.image in images:
                libbpf.delete(self._fds["failures"], failure)
        self._names.forget(images, keys)
        self._released = {
            site: released for site, released in self._released.items() if site[1] not in images
        }
        for image in images:
            self._unsupported.pop(image, None)
            self._images.forget(image)

    def _catch_up(self) -> None:
        for new in self._mappings.taken():
            self._probes.mapped(new.pid, new.file, new.path)
        self._events.consume()

    def _receive(self, data: bytes) -> None:
        kind = int.from_bytes(data[:4], "little")
        if kind == abi.EventType.CODE:
            self._names.describe(abi.CodeEvent.from_buffer_copy(data))
        elif kind == abi.EventType.IMAGE:
            event = abi.ImageEvent.from_buffer_copy(data)
            self._images.begin(event)
            if not self._family.isdisjoint(ancestry(event.tgid, event.image.parent)):
                self._family.add(event.tgid)
            self._probes.look_at(event.tgid)
            if reason := self._probes.why_no_python(event.tgid):
                self._unsupported[event.image.id] = f"<{reason}>"
        elif kind == abi.EventType.IMAGE_END:
            self._images.end(abi.ImageEvent.from_buffer_copy(data))
            self._unswept = True

    def _release_ended(self) -> None:
        """What ended processes still held is free: add it to their sites, and take it out of `live`."""
        if not self._unswept:
            return
        self._unswept = False
        for key, value in list(libbpf.items(self._fds["live"], abi.LiveKey, abi.LiveValue)):
            if key.image not in self._images.ended:
                continue
            libbpf.delete(self._fds["live"], key)
            site = value.site
            released = self._released.setdefault((site.stack, site.image, site.tid), [0, 0])
            released[0] += value.bytes
            released[1] += 1

    def _named(self, totals: list[tuple[abi.Site, abi.Totals]]) -> Mapping[NamedSite, NamedTotals]:
        named: dict[NamedSite, NamedTotals] = {}
        self._without_python = 0
        for site, sums in totals:
            process = self._images.process(site.image)
            if not self._wanted(process):
                continue
            if site.stack == abi.StackReason.NO_INTERPRETER and site.image in self._unsupported:
                self._without_python += sums.allocated_objects
            stack = self._names.stack(site.image, site.stack, self._unsupported.get(site.image))
            released = self._released.get((site.stack, site.image, site.tid), (0, 0))
            key = NamedSite(process=process, thread_id=site.tid, stack=stack)
            named[key] = _added(named.get(key), sums, released[0], released[1])
        return named

    def _failures(self) -> dict[tuple[Process, int], int]:
        counts: dict[tuple[Process, int], int] = {}
        for key, calls in libbpf.items(self._fds["failures"], abi.FailureKey, c_uint64):  # type: ignore[type-var]
            process = self._images.process(key.image)
            if self._wanted(process):
                counts[process, key.code] = counts.get((process, key.code), 0) + int(calls)
        return counts

    def _losses(self) -> dict[str, int]:
        counts = {loss.name.lower(): libbpf.per_cpu_sum(self._fds["losses"], loss) for loss in abi.Loss}
        return counts | {
            "python_stack_missed": self._without_python,
            "name_lost": self._names.unnamed,
            "probe_failed": self._probes.failed,
            "driver_found_late": self._probes.drivers_found_late,
            "mapping_lost": self._mappings.lost,
        }

    def _wanted(self, process: Process) -> bool:
        return self._options.pids is None or process.pid in self._family


def _added(before: NamedTotals | None, sums: Any, released_bytes: int, released_objects: int) -> NamedTotals:
    """One more kernel site of the same name: two stacks can differ in addresses only."""
    before = before or NamedTotals()
    return NamedTotals(
        allocated_bytes=before.allocated_bytes + sums.allocated_bytes,
        allocated_objects=before.allocated_objects + sums.allocated_objects,
        freed_bytes=before.freed_bytes + sums.freed_bytes + released_bytes,
        freed_objects=before.freed_objects + sums.freed_objects + released_objects,
        released_at_exit_bytes=before.released_at_exit_bytes + released_bytes,
        released_at_exit_objects=before.released_at_exit_objects + released_objects,
    )
