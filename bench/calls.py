# SPDX-License-Identifier: Apache-2.0
"""What one allocation and one free cost below a Python stack: without probes, with empty ones, with the tracer's."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.build import BPFTRACE, EMPTY, EMPTY_EVENTS, PLAIN, TRACED, Built
from bench.figures import BadMeasurement, Figure, Outcome, median, ratio
from bench.probes import (
    NotAvailable,
    attachment,
    bpftrace,
    empty_probes,
    objects_seen,
    objects_with_stack,
    tracing,
    undisturbed,
    wait_until_probed,
)
from bench.workers import Cost, Worker
from gpuheap.tracer import Tracer

DEPTH: Final = 20
OTHER_DEPTHS: Final = (5, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often is measured: `rounds` samples of `count` calls each."""

    rounds: int = 150
    count: int = 1000


DEFAULT: Final = Effort()


def quick(built: Built, interpreters: dict[str, Path]) -> Iterator[tuple[str, dict[str, Cost]]]:
    """At depth 20, by version of Python. Raises BadMeasurement."""
    effort = Effort(rounds=60, count=500)
    with empty_probes(built), tracing(built) as tracer:
        for version, path in interpreters.items():
            drivers = [PLAIN, EMPTY, TRACED]
            yield version, undisturbed(partial(measured, built, path, tracer, drivers, DEPTH, effort))


def calls(built: Built, interpreters: dict[str, Path], effort: Effort = DEFAULT) -> Outcome:
    """All of it. The figures without a version are those of the newest Python that the tracer knows."""
    figures: list[Figure] = []
    notes: list[str] = []
    with ExitStack() as attached:
        attached.enter_context(empty_probes(built))
        tracer = attached.enter_context(tracing(built))
        drivers = [PLAIN, EMPTY, EMPTY_EVENTS, TRACED]
        notes.append(f"the tracer and alloc_empty_ns use {attachment()}, alloc_empty_events_ns perf events")
        try:
            attached.enter_context(bpftrace(built))
            drivers.append(BPFTRACE)
        except NotAvailable as reason:
            notes.append(f"alloc_bpftrace_over_pair skipped: {reason}")
        newest: tuple[str, Path] | None = None
        for version, path in interpreters.items():
            try:
                cost = undisturbed(partial(measured, built, path, tracer, drivers, DEPTH, effort))
            except BadMeasurement as reason:
                notes.append(f"Python {version} skipped: {reason}")
                continue
            newest = version, path
            newest_cost = cost
            figures += ratios(cost, f"_{version.replace('.', '_')}")
        if newest is None:
            raise BadMeasurement(f"no Python to measure with: {'; '.join(notes)}")
        version, path = newest
        notes.append(f"figures without a version: Python {version}")
        figures = [*ratios(newest_cost), *absolute(newest_cost), *figures]
        for depth in OTHER_DEPTHS:
            cost = undisturbed(partial(measured, built, path, tracer, [EMPTY, TRACED], depth, effort))
            figures.append(
                ratio(f"alloc_python{depth}_over_pair", cost[TRACED].allocate_ns, cost[EMPTY].allocate_ns)
            )
    return Outcome(figures=figures, notes=notes)


def measured(
    built: Built, interpreter: Path, tracer: Tracer, drivers: list[str], depth: int, effort: Effort
) -> dict[str, Cost]:
    """Raises BadMeasurement when the tracer did not see every call with its stack: that would not be its cost."""
    with Worker(interpreter, built, tracer.poll) as worker:
        worker.load({name: built.drivers[name] for name in {*drivers, PLAIN}})
        wait_until_probed(worker, [name for name in drivers if name != PLAIN])
        made, before = -worker.allocations(TRACED), tracer.read()
        cost = worker.measure(drivers, depth=depth, rounds=effort.rounds, count=effort.count)
        made, after = made + worker.allocations(TRACED), tracer.read()
        seen = objects_seen(after, worker.pid) - objects_seen(before, worker.pid)
        named = objects_with_stack(after, worker.pid, depth) - objects_with_stack(before, worker.pid, depth)
    if seen != made:
        raise BadMeasurement(f"the tracer saw {seen} of {made} allocations")
    if named != made:
        raise BadMeasurement(f"{made - named} of {made} allocations have no Python stack of depth {depth}")
    return cost


def ratios(cost: dict[str, Cost], suffix: str = "") -> list[Figure]:
    """Of the tracer to the empty pair."""
    figures = [
        ratio(f"alloc_python{DEPTH}_over_pair{suffix}", cost[TRACED].allocate_ns, cost[EMPTY].allocate_ns),
        ratio(f"free_over_pair{suffix}", cost[TRACED].free_ns, cost[EMPTY].free_ns),
    ]
    if BPFTRACE in cost and not suffix:
        figures.append(ratio("alloc_bpftrace_over_pair", cost[BPFTRACE].allocate_ns, cost[EMPTY].allocate_ns))
    return figures


def absolute(cost: dict[str, Cost]) -> list[Figure]:
    return [
        figure
        for name, one in cost.items()
        for figure in (
            median(f"alloc_{name}_ns", one.allocate_ns, "ns"),
            median(f"free_{name}_ns", one.free_ns, "ns"),
        )
    ]
