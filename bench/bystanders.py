# SPDX-License-Identifier: Apache-2.0
"""What the tracer costs programs that never allocate: their CPU time with it and without it, in turns.

A turn counts with its fastest piece of work, and the faster half of the turns counts: whatever else the machine does
only adds to the others.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.build import Built
from bench.figures import Figure, median, ratio
from bench.probes import tracing
from bench.workers import Worker
from gpuheap.tracer import Tracer

TURNS: Final = 12
COMPUTE_SECONDS: Final = 0.6
STARTS: Final = 12


def bystanders(built: Built, interpreter: Path) -> Iterator[Figure]:
    """`..._over_untraced` is 1 for a program that does not notice: one that computes, and Python's start and end."""
    ms: dict[tuple[str, bool], list[float]] = {}
    attached = ExitStack()
    with attached, Worker(interpreter, built) as worker:
        measures: dict[str, Callable[[Tracer | None], float]] = {
            "cpu_bound": lambda tracer: _compute(worker),
            "python_start": lambda tracer: min(_start(interpreter, tracer) for _ in range(STARTS)),
        }
        for turn in range(2 * TURNS):
            traced = turn % 4 in (1, 2)  # without, with, with, without: a drift of the machine weighs on both
            if not traced:
                attached.close()
            elif turn % 4 == 1:
                tracer = attached.enter_context(tracing(built))
            for name, measure in measures.items():
                ms.setdefault((name, traced), []).append(measure(tracer if traced else None))
    for name in measures:
        without, with_it = (sorted(ms[name, traced])[: TURNS // 2] for traced in (False, True))
        yield ratio(f"{name}_over_untraced", with_it, without)
        yield median(f"{name}_cpu_ms", without, "ms")
        yield median(f"{name}_traced_cpu_ms", with_it, "ms")


def _compute(worker: Worker) -> float:
    pieces: list[float] = worker.ask({"do": "compute", "seconds": COMPUTE_SECONDS})["ms"]
    return min(pieces)


def _start(interpreter: Path, tracer: Tracer | None) -> float:
    """User and kernel time of a program, in ms. The tracer hears of it afterwards, and in this process."""
    with subprocess.Popen([interpreter, "-I", "-S", "-c", "pass"]) as running:
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if tracer:
        tracer.poll(0)
    return (usage.ru_utime + usage.ru_stime) * 1000
