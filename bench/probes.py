# SPDX-License-Identifier: Apache-2.0
"""The probes that are compared: empty ones, bpftrace's, and the tracer's; each on a driver file of its own."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from bench.build import BPFTRACE, EMPTY, EMPTY_EVENTS, FUNCTIONS, PLAIN, TRACED, Built
from bench.figures import BadMeasurement
from bench.programs import foreign
from bench.workers import Worker
from gpuheap.heap.model import FrameKind, Reading
from gpuheap.tracer import Tracer, TracerOptions
from gpuheap.tracer.kernel import Kernel
from gpuheap.tracer.libbpf import BpfObject, Uprobe

T = TypeVar("T")

DEADLINE_SECONDS: Final = 30
QUIET_SECONDS: Final = 180
MINORS: Final = range(11, 15)
"""Of CPython 3, as in gpuheap.stacks.cpython.SUPPORTED."""

PROBED_OVER_PLAIN: Final = 5
"""A probed call costs at least so many times a plain one: a trap into the kernel, against doing nothing."""

SUM_BY_STACK: Final = """
uprobe:{path}:cuMemAlloc_v2 {{ @size[tid] = arg1; }}
uretprobe:{path}:cuMemAlloc_v2 /@size[tid]/ {{ @bytes[ustack] = sum(@size[tid]); delete(@size[tid]); }}
"""


class NotAvailable(Exception):
    """A comparison that this machine cannot make; the text says why."""


def attachment() -> str:
    """How the tracer sets its probes on this kernel."""
    return "uprobe_multi" if Kernel.running().uprobe_multi else "perf events"


@contextmanager
def empty_probes(built: Built) -> Iterator[None]:
    """An entry and a return probe on each function of `EMPTY`, attached as the tracer attaches its own.

    Those of `EMPTY_EVENTS` are perf events on every kernel.
    """
    with ExitStack() as attached:
        for driver, multi in ((EMPTY, Kernel.running().uprobe_multi), (EMPTY_EVENTS, False)):
            empty = attached.enter_context(BpfObject(built.empty, multi=multi))
            offsets = [built.offset(driver, function) for function in FUNCTIONS]
            returns = [Uprobe(program="empty_return", offset=offset, on_return=True) for offset in offsets]
            entries = [Uprobe(program="empty_entry", offset=offset) for offset in offsets]
            empty.attach_uprobes([*returns, *entries], str(built.drivers[driver]))
        yield


@contextmanager
def tracing(
    built: Built, live_allocations: int | None = None, *, native_stacks: bool = False
) -> Iterator[Tracer]:
    """The tracer, with the driver where it finds it before any program has mapped it."""
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = str(built.drivers[TRACED].parent)
    options = TracerOptions(native_stacks=native_stacks)
    if live_allocations:
        options = replace(options, live_allocations=live_allocations)
    try:
        tracer = Tracer(options)
    finally:
        if before is None:
            del os.environ["LD_LIBRARY_PATH"]
        else:
            os.environ["LD_LIBRARY_PATH"] = before
    with tracer:
        yield tracer


@contextmanager
def bpftrace(built: Built) -> Iterator[None]:
    """A program that sums sizes by native stack. Raises NotAvailable."""
    program = shutil.which("bpftrace")
    if program is None:
        raise NotAvailable("bpftrace is not installed (package bpftrace)")
    text = SUM_BY_STACK.format(path=built.drivers[BPFTRACE])
    with subprocess.Popen(
        [program, "-e", text], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            yield
        finally:
            running.kill()  # at an orderly end it would print every stack


def wait_until_probed(worker: Worker, drivers: list[str]) -> None:
    """Until calls of all these drivers cost what a probe costs. Raises BadMeasurement when they never do."""
    end = time.monotonic() + DEADLINE_SECONDS
    waiting = list(drivers)
    while waiting:
        cost = worker.measure([PLAIN, *waiting], depth=20, rounds=3, count=100)
        plain = min(cost[PLAIN].allocate_ns)
        waiting = [name for name in waiting if min(cost[name].allocate_ns) < PROBED_OVER_PLAIN * plain]
        if waiting and time.monotonic() > end:
            raise BadMeasurement(f"no probe on {', '.join(waiting)} after {DEADLINE_SECONDS} s")


def undisturbed(measure: Callable[[], T]) -> T:
    """What was measured while no other tracer was on this machine. Raises BadMeasurement when there always is one.

    Its probes would be on our files as well, and a call would cost twice as much.
    """
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        if not foreign():
            measured = measure()
            if not foreign():
                return measured
        time.sleep(0.2)
    raise BadMeasurement(
        "another gpuheap traces this machine, and its probes are on the measured files, too: end it"
    )


def objects_seen(reading: Reading, pid: int) -> int:
    return sum(totals.allocated_objects for site, totals in reading.totals.items() if site.process.pid == pid)


def objects_with_stack(reading: Reading, pid: int, depth: int) -> int:
    """How many of them have a Python stack of this depth, with the measured program's own functions."""
    return sum(
        totals.allocated_objects
        for site, totals in reading.totals.items()
        if site.process.pid == pid
        and len(python := [frame for frame in site.stack if frame.kind is FrameKind.PYTHON]) == depth
        and python[-1].function.rpartition(".")[2].startswith("level_")
    )


def objects_with_native_stack(reading: Reading, pid: int, depth: int) -> int:
    """How many of them have at least so many native frames."""
    return sum(
        totals.allocated_objects
        for site, totals in reading.totals.items()
        if site.process.pid == pid and sum(frame.kind is FrameKind.NATIVE for frame in site.stack) >= depth
    )


def interpreters() -> dict[str, Path]:
    """The CPythons of this machine by version (`3.13`), oldest first: on PATH, pyenv's, and the one that runs this."""
    candidates = [
        Path(sys.executable),
        *(Path(folder) / f"python3.{minor}" for folder in os.get_exec_path() for minor in MINORS),
        *sorted((Path.home() / ".pyenv" / "versions").glob("*/bin/python3")),
    ]
    found: dict[str, Path] = {}
    for path in candidates:
        version = _version(path) if path.exists() and ".pyenv/shims" not in str(path) else None
        if version:
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def _version(path: Path) -> str | None:
    code = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if len(words) != 3 or words[:2] != ["cpython", "3"] or int(words[2]) not in MINORS:
        return None
    return f"3.{words[2]}"
