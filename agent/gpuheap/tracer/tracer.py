# SPDX-License-Identifier: Apache-2.0
"""The tracer: loads the kernel side, keeps the probes up to date, and hands out readings."""

import ctypes
import select
import time
from collections.abc import Iterator, Mapping
from ctypes import c_int32, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gpuheap.heap.model import Pool, PoolTotals, Process, Reading
from gpuheap.heap.model import Site as NamedSite
from gpuheap.heap.model import Totals as NamedTotals
from gpuheap.heap.totals import NOTHING, add

from . import abi, libbpf
from .calls import KINDS, Call
from .code_deaths import CodeDeaths
from .gpus import Gpus
from .images import Images, ancestry
from .kernel import Kernel
from .memory_failures import MemoryFailures
from .names import Names
from .native_stacks import NativeStacks
from .new_mappings import NewMappings
from .probes import Probes
from .releases import Released, Releases, SiteKey
from .whole_stacks import WholeStacks

OBJECT: Final = Path(__file__).with_name("gpuheap.bpf.o")
SHARE: Final = 4
"""One process can have this part of the table of allocations in use."""

TRACEPOINTS: Final = ("process_forks", "process_execs", "thread_exits")
_WITH_COOKIES: Final = frozenset({"enter", "leave", "interpreter_starts", "code_dies", *TRACEPOINTS})
_WITHOUT_COOKIES: Final = frozenset(
    {*(f"enter_{call.name}" for call in Call), "leave_last", "code_dies", *TRACEPOINTS}
)
_MAPS: Final[dict[str, tuple[Any, Any]]] = {
    "settings": (c_uint32, abi.Settings),
    "images": (c_uint32, abi.Image),
    "interpreters": (c_uint32, abi.Interpreter),
    "code_deaths": (c_uint32, abi.CodeDeaths),
    "stacks": (c_uint64, abi.Stack),
    "live": (abi.LiveKey, abi.LiveValue),
    "sites": (abi.Site, abi.Totals),
    "full_sites": (abi.Site, abi.Totals),
    "failures": (abi.FailureKey, c_uint64),
    "ended_owners": (c_uint64, c_uint32),
}
"""What the maps hold, and those of `_BY_PROCESS`."""

_BY_PROCESS: Final[dict[str, tuple[Any, Any]]] = {
    "handles": (abi.HandleKey, abi.Handle),
    "mappings": (abi.HandleKey, abi.Mapping),
    "owners": (abi.OwnerKey, abi.Owner),
    "pools": (abi.PoolKey, abi.Pool),
    "default_pools": (abi.PoolKey, c_int32),
    "current_pools": (abi.PoolKey, c_uint64),
}
"""Maps whose entries are of no use when their image has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracerOptions:
    """`pids`: readings hold these processes and what they start; None: all.

    `commands`: programs about to be started, by path or by name on PATH; their interpreters are probed beforehand.
    `live_allocations`: how many allocations the kernel's table holds, about 150 bytes each when in use. A process can
    have a fourth of it; what it has beyond is kept by the tracer itself, which is slower and just as exact.
    `native_stacks`: whether stacks have native frames, too; without them an allocation costs less.
    """

    pids: frozenset[int] | None = None
    commands: tuple[str, ...] = ()
    live_allocations: int = 1 << 20
    native_stacks: bool = True


class Tracer:
    """Accounts for the GPU memory of this machine's processes from its construction until `close`.

    Raises TracerError when this machine or this user cannot trace. Not for use by several threads.
    """

    def __init__(self, options: TracerOptions | None = None) -> None:
        self._options = options or TracerOptions()
        self._releases = Releases()
        self._memory_failures = MemoryFailures()
        self._family = set(self._options.pids or ())
        self._unsupported: dict[int, str] = {}
        self._without_python = 0
        self._without_native = 0
        self._unswept = False
        self._events_lost = 0
        self._kernel = Kernel.running()
        self._bpf = libbpf.BpfObject(
            OBJECT,
            {"live": self._options.live_allocations},
            programs=_WITH_COOKIES if self._kernel.cookies else _WITHOUT_COOKIES,
            multi=self._kernel.uprobe_multi,
        )
        try:
            self._start()
        except BaseException:
            self._bpf.close()
            raise

    def _start(self) -> None:
        for name, (key, value) in (_MAPS | _BY_PROCESS).items():
            self._bpf.check_map(name, ctypes.sizeof(key), ctypes.sizeof(value))
        began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        share = max(1, self._options.live_allocations // SHARE)
        libbpf.update(
            self._bpf.map_fd("settings"),
            c_uint32(0),
            abi.Settings(began_ns=began, live_share=share, native_stacks=int(self._options.native_stacks)),
        )
        for program in TRACEPOINTS:
            self._bpf.attach(program)
        names = ("losses", "events", "spills", *_MAPS, *_BY_PROCESS)
        self._fds = {name: self._bpf.map_fd(name) for name in names}
        self._images = Images()
        self._gpus = Gpus()
        self._names = Names(self._bpf.map_fd("stacks"))
        self._code_deaths = CodeDeaths(self._bpf)
        self._probes = Probes(self._bpf, cookies=self._kernel.cookies)
        self._events = libbpf.RingBuffer(self._fds["events"], self._receive)
        self._natives = NativeStacks(self._bpf, self._events.consume, self._note_mappings)
        self._stacks = WholeStacks(self._names, self._natives if self._options.native_stacks else None)
        self._spills = libbpf.RingBuffer(
            self._fds["spills"],
            lambda data: self._releases.spill(abi.SpillEvent.from_buffer_copy(data), self._images.ended),
        )
        self._mappings = NewMappings()  # before the processes are looked at: none falls between
        self._probes.set_initially(self._options.commands)
        self._poll = select.poll()
        for fd in (self._events.fileno, self._spills.fileno, self._natives.fileno, *self._mappings.filenos):
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
        self._spills.close()
        self._natives.close()
        self._bpf.close()

    def poll(self, timeout_seconds: float) -> None:
        """Wait for news at most so long, and act on what is there: probe new files, note processes, name code."""
        self._poll.poll(max(0.0, timeout_seconds) * 1000)
        self._catch_up()

    def read(self) -> Reading:
        """Everything since tracing began, without what was forgotten."""
        self._catch_up()
        totals = self._settled_sites()
        self._natives.keep({site.native for site, _ in totals})
        self._release_ended()
        return Reading(
            taken_unix_ns=time.time_ns(),
            totals=self._named(totals),
            exited=frozenset(process for process in self._images.exited() if self._wanted(process)),
            joined_late=frozenset(process for process in self._images.joined_late() if self._wanted(process)),
            pools=self._pools(),
            out_of_memory=self._memory_failures.named(self._site, lambda site: self._wanted(site.process)),
            failures=self._failures(),
            losses=self._losses(),
        )

    def forget(self, processes: frozenset[Process]) -> None:
        """Drop ended processes; later readings do not hold them."""
        images = self._images.ids_of(processes) & self._images.ended
        keys = set()
        for table in ("sites", "full_sites"):
            for site, _ in list(libbpf.items(self._fds[table], abi.Site, abi.Totals)):
                if site.image in images:
                    keys.add(site.stack)
                    libbpf.delete(self._fds[table], site)
        for failure, _ in list(libbpf.items(self._fds["failures"], abi.FailureKey, c_uint64)):  # type: ignore[type-var]
            if failure.image in images:
                libbpf.delete(self._fds["failures"], failure)
        self._names.forget(images, keys)
        self._natives.forget(images)
        self._stacks.forget(images)
        self._releases.forget(images)
        self._memory_failures.forget(images)
        self._gpus.forget(images)
        for image in images:
            self._unsupported.pop(image, None)
            self._images.forget(image)

    def _settled_sites(self) -> list[tuple[abi.Site, abi.Totals]]:
        """With the names of all that was read; of a process that has ended, everything that it did."""
        while True:
            ended = len(self._images.ended)
            totals = list(self._sites())
            self._catch_up()
            if len(self._images.ended) == ended:
                return totals

    def _sites(self) -> Iterator[tuple[abi.Site, abi.Totals]]:
        for table in ("sites", "full_sites"):
            yield from libbpf.items(self._fds[table], abi.Site, abi.Totals)

    def _catch_up(self) -> None:
        self._note_mappings()
        self._spills.consume()
        self._events.consume()
        self._natives.consume()  # of processes that are known
        self._recover_images()
        if self._memory_failures.unexamined:
            self._release_ended()
            self._memory_failures.examine(self._sites(), self._releases)

    def _note_mappings(self) -> None:
        missed = self._mappings.lost + self._mappings.times_full
        for new in self._mappings.taken():
            self._natives.mapped(new)
            if not new.path:  # memory without a file
                continue
            self._probes.mapped(new)
            if self._options.native_stacks and self._probes.is_driver(new.file):
                self._natives.expect(new.pid)
        self._natives.look_at_expected()
        if self._mappings.lost + self._mappings.times_full > missed:
            self._probes.look_at_all()
            self._natives.mapped_anywhere()

    def _receive(self, data: bytes) -> None:
        kind = int.from_bytes(data[:4], "little")
        if kind == abi.EventType.CODE:
            whole = data.ljust(ctypes.sizeof(abi.CodeEvent), b"\0")
            self._names.describe(abi.CodeEvent.from_buffer_copy(whole))
        elif kind == abi.EventType.IMAGE:
            self._begin(abi.ImageEvent.from_buffer_copy(data))
        elif kind == abi.EventType.IMAGE_END:
            event = abi.ImageEvent.from_buffer_copy(data)
            self._images.end(event)
            self._code_deaths.end(event.image.id)
            self._natives.ended(event.image.id)
            self._unswept = True
        elif kind == abi.EventType.OUT_OF_MEMORY:
            self._memory_failures.failed(abi.MemoryEvent.from_buffer_copy(data), time.time_ns())

    def _begin(self, event: abi.ImageEvent) -> None:
        image = event.image.id
        self._images.begin(event)
        if self._options.native_stacks:
            self._natives.begin(image, event.tgid, event.image.parent)
        self._gpus.look_at(image, event.tgid)
        if not self._family.isdisjoint(ancestry(event.tgid, event.image.parent)):
            self._family.add(event.tgid)
        self._probes.look_at(event.tgid)
        self._code_deaths.begin(image, event.tgid, self._probes.interpreter_of(event.tgid))
        if reason := self._probes.why_no_python(event.tgid):
            self._unsupported[image] = f"<{reason}>"

    def _recover_images(self) -> None:
        """Where events were lost, the map of processes says which began and which ended."""
        lost = libbpf.per_cpu_sum(self._fds["losses"], abi.Loss.RING_FULL)
        if lost == self._events_lost:
            return
        self._events_lost = lost
        there = {image.id: (tgid, image) for tgid, image in self._present()}
        for image in self._images.missing_from(there.keys()):
            self._images.ended.add(image)
            self._code_deaths.end(image)
            self._unswept = True
        for image, (tgid, value) in there.items():
            if not self._images.knows(image):
                self._begin(abi.ImageEvent(tgid=tgid, image=value))

    def _present(self) -> Iterator[tuple[int, abi.Image]]:
        for tgid, image in libbpf.items(self._fds["images"], c_uint32, abi.Image):  # type: ignore[type-var]
            yield int(tgid), image

    def _release_ended(self) -> None:
        """What ended processes, contexts and graphs still held is free: it comes on top of the kernel side's totals."""
        owners = {
            int(owner): int(moment)
            for owner, moment in libbpf.items(self._fds["ended_owners"], c_uint64, c_uint32)  # type: ignore[type-var]
        }
        if not self._unswept and not owners:
            return
        self._unswept = False
        images = self._images.ended
        self._releases.end(images, owners)
        for key, value in list(libbpf.items(self._fds["live"], abi.LiveKey, abi.LiveValue)):
            if key.image in images or value.owner in owners:
                libbpf.delete(self._fds["live"], key)
                self._releases.add(
                    SiteKey.of(value.site),
                    value.bytes,
                    at_exit=key.image in images,
                    moment=owners.get(value.owner, 0),
                )
        for name, (key_type, value_type) in _BY_PROCESS.items():
            for key, value in list(libbpf.items(self._fds[name], key_type, value_type)):
                if key.image not in images:
                    continue
                libbpf.delete(self._fds[name], key)
                if isinstance(value, abi.Handle) and value.site.kind in KINDS:
                    self._releases.add(SiteKey.of(value.site), value.bytes, at_exit=True)
        for owner in owners:
            libbpf.delete(self._fds["ended_owners"], c_uint64(owner))

    def _site(self, key: SiteKey) -> NamedSite:
        return NamedSite(
            process=self._images.process(key.image),
            thread_id=key.tid,
            stack=self._stacks.stack(key, self._unsupported.get(key.image)),
            kind=KINDS[key.kind],
            device=self._gpus.device(key.image, key.device),
            call=Call(key.call).name,
        )

    def _named(self, totals: list[tuple[abi.Site, abi.Totals]]) -> Mapping[NamedSite, NamedTotals]:
        named: dict[NamedSite, NamedTotals] = {}
        self._without_python = self._without_native = 0
        for site, sums in totals:
            if not self._wanted(self._images.process(site.image)):
                continue
            if site.stack == abi.StackReason.NO_INTERPRETER and site.image in self._unsupported:
                self._without_python += sums.allocated_objects
            key = SiteKey.of(site)
            if self._stacks.lacks_native(key):
                self._without_native += sums.allocated_objects
            name = self._site(key)
            released = self._releases.of(key)
            if key.image in self._images.ended:
                released = _all_released(sums, released)
            # Two kernel sites can have one name: their stacks differ in what is not shown.
            named[name] = add(named.get(name, NOTHING), _totals(sums, released))
        return named

    def _pools(self) -> dict[Pool, PoolTotals]:
        found = {}
        for key, pool in libbpf.items(self._fds["pools"], abi.PoolKey, abi.Pool):
            process = self._images.process(key.image)
            if not self._wanted(process) or key.image in self._images.ended:
                continue
            in_use = pool.in_use - self._releases.freed_of_pool(key.image, key.pool)
            kept = min(pool.peak, max(pool.threshold, in_use))
            address = 0 if key.pool < abi.DEFAULT_POOLS else key.pool
            name = Pool(process=process, device=self._gpus.device(key.image, pool.device), address=address)
            found[name] = PoolTotals(in_use_bytes=in_use, retained_bytes=max(0, kept - in_use))
        return found

    def _failures(self) -> dict[tuple[Process, int], int]:
        counts: dict[tuple[Process, int], int] = {}
        for key, calls in libbpf.items(self._fds["failures"], abi.FailureKey, c_uint64):  # type: ignore[type-var]
            process = self._images.process(key.image)
            if self._wanted(process):
                counts[process, key.code] = counts.get((process, key.code), 0) + int(calls)
        return counts

    def _losses(self) -> dict[str, int]:
        counts = {loss.name.lower(): libbpf.per_cpu_sum(self._fds["losses"], loss) for loss in abi.Loss}
        counts["unknown_free"] += self._releases.unknown_frees
        counts["spill_full"] += self._releases.spill_full
        return counts | {
            "python_stack_missed": self._without_python,
            "native_stack_missed": self._without_native,
            "native_stack_cut": self._natives.cut,
            "line_unread": self._natives.unread_lines,
            "merge_uncertain": self._stacks.uncertain,
            "name_lost": self._names.unnamed,
            "probe_failed": self._probes.failed,
            "driver_found_late": self._probes.drivers_found_late,
            "mapping_lost": self._mappings.lost,
            "oom_blurred": self._memory_failures.blurred,
        }

    def _wanted(self, process: Process) -> bool:
        return self._options.pids is None or process.pid in self._family


def _all_released(sums: Any, known: Released) -> Released:
    """Of an ended process, which holds nothing: what no table had room for went with it, too."""
    held_bytes, held_objects = (
        sums.allocated_bytes - sums.freed_bytes,
        sums.allocated_objects - sums.freed_objects,
    )
    return Released(
        bytes=held_bytes,
        objects=held_objects,
        exit_bytes=held_bytes - (known.bytes - known.exit_bytes),
        exit_objects=held_objects - (known.objects - known.exit_objects),
    )


def _totals(sums: Any, released: Released) -> NamedTotals:
    return NamedTotals(
        allocated_bytes=sums.allocated_bytes,
        allocated_objects=sums.allocated_objects,
        freed_bytes=sums.freed_bytes + released.bytes,
        freed_objects=sums.freed_objects + released.objects,
        released_at_exit_bytes=released.exit_bytes,
        released_at_exit_objects=released.exit_objects,
    )
