# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: measures, prints a table, and writes build/bench.json. Ratios are within one run.

--quick      nanoseconds a call at depth 20, for each Python of the machine; writes nothing
--programs   the same calls, and what the kernel says that each BPF program took; writes nothing
--only PART  calls, curves, native_calls, snapshots, bystanders, agent or native; may be repeated; writes nothing
"""

import argparse
import fcntl
import logging
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Final

from rich.console import Console

from bench import programs
from bench.agent_cost import agent_cost
from bench.build import EMPTY, BuildFailed, Built, build
from bench.bystanders import bystanders
from bench.calls import calls, quick
from bench.curves import curves
from bench.figures import BadMeasurement, Figure, Outcome
from bench.native_calls import native_calls
from bench.native_stacks import native_stacks
from bench.probes import interpreters
from bench.report import machine, number, rows, show, write
from bench.snapshots import snapshots
from bench.workers import WorkerFailed
from gpuheap.tracer import TracerError
from localcloud.toolchain.cache import cache_folder

CHECKOUT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = CHECKOUT / "build" / "bench"
RESULTS: Final = CHECKOUT / "build" / "bench.json"
MORE: Final[dict[str, Callable[[Built, Path], Iterable[Figure]]]] = {
    "curves": curves,
    "native_calls": native_calls,
    "snapshots": snapshots,
    "bystanders": bystanders,
    "agent": agent_cost,
}
"""With the newest Python; `calls` goes through all of them."""

PARTS: Final = ("calls", *MORE, "native")
_lock: IO[str] | None = None

FAILURES: Final = (BadMeasurement, BuildFailed, TracerError, WorkerFailed)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--only", action="append", metavar="PART", choices=PARTS)
    parser.add_argument(
        "--python", action="append", metavar="3.N", help="only with this one; may be repeated"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    console = Console(highlight=False)
    # Interpreters that the tracer does not know are no news here.
    logging.getLogger("gpuheap").setLevel(logging.ERROR)
    if os.geteuid():
        console.print("✗ needs root: uprobes are set for every process of the machine")
        return 1
    try:
        found = _chosen(options.python)
        _wait_for_another(console)
        _refuse_statistics()
        built = build(FOLDER)
        if options.programs:
            with programs.statistics():
                _quick(console, built, found, with_programs=True)
        elif options.quick:
            _quick(console, built, found, with_programs=False)
        else:
            return _parts(console, built, found, options.only)
    except FAILURES as error:
        console.print(f"✗ {error}", markup=False)
        return 1
    return 0


def _wait_for_another(console: Console) -> None:
    """Two of these would measure each other's tracer, of another checkout, too, and replace each other's files."""
    global _lock  # noqa: PLW0603 - held until this process ends
    cache_folder().mkdir(parents=True, exist_ok=True)
    _lock = (cache_folder() / "bench-lock").open("w")
    try:
        fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        console.print("waiting for another benchmark to end")
        fcntl.flock(_lock, fcntl.LOCK_EX)


def _refuse_statistics() -> None:
    if programs.kept_for_all():
        raise BadMeasurement(
            "the kernel keeps statistics of BPF programs, which makes each run dearer: "
            "turn them off with `sysctl kernel.bpf_stats_enabled=0`"
        )


def _chosen(versions: list[str] | None) -> dict[str, Path]:
    """Raises BadMeasurement when there is none."""
    found = interpreters()
    chosen = {version: path for version, path in found.items() if not versions or version in versions}
    if not chosen:
        raise BadMeasurement(
            f"Python {', '.join(versions or ())} is not here; found: {', '.join(found) or 'none'}"
        )
    return chosen


def _parts(console: Console, built: Built, found: dict[str, Path], only: list[str] | None) -> int:
    """Each is shown when it is there; one that fails is a note, and the others go on."""
    figures: list[Figure] = []
    notes: list[str] = []
    failed = 0
    for part in only or PARTS:
        try:
            outcome = _measured(part, built, found)
        except FAILURES as error:
            outcome = Outcome(figures=[], notes=[f"{part} failed: {error}"])
            failed += 1
        show(console, part, outcome.figures)
        for note in outcome.notes:
            console.print(note, markup=False, soft_wrap=True)
        figures += outcome.figures
        notes += outcome.notes
    if not only:
        write(RESULTS, machine(notes), figures)
        console.print(f"✓ {RESULTS.relative_to(CHECKOUT)}")
    return 1 if failed else 0


def _measured(part: str, built: Built, found: dict[str, Path]) -> Outcome:
    if part == "calls":
        return calls(built, found)
    if part == "native":
        return native_stacks(built, list(found.values())[-1])
    return Outcome(figures=list(MORE[part](built, list(found.values())[-1])), notes=[])


def _quick(console: Console, built: Built, found: dict[str, Path], *, with_programs: bool) -> None:
    before = programs.runs() if with_programs else {}
    for version, cost in quick(built, found):
        alloc_floor = statistics.median(cost[EMPTY].allocate_ns)
        free_floor = statistics.median(cost[EMPTY].free_ns)
        rows(
            console,
            [f"Python {version}", "alloc ns", "free ns", "alloc/pair", "free/pair"],
            [
                [
                    name,
                    number(alloc := statistics.median(one.allocate_ns)),
                    number(free := statistics.median(one.free_ns)),
                    number(alloc / alloc_floor),
                    number(free / free_floor),
                ]
                for name, one in cost.items()
            ],
        )
        if with_programs:
            after = programs.runs()
            rows(
                console,
                ["BPF program", "runs", "ns a run"],
                [
                    [run.name, f"{run.runs:,}", number(run.ns / run.runs)]
                    for run in programs.between(before, after)
                ],
            )
            before = after
        console.print()


if __name__ == "__main__":
    sys.exit(main())
