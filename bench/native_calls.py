# SPDX-License-Identifier: Apache-2.0
"""What one allocation costs when native stacks are taken, too: by depth of the Python stack, and of the native one.

`calls` has the same without them. All stacks were seen before; what a new one costs is in `native_stacks`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from bench.build import EMPTY, PLAIN, TRACED, Built
from bench.calls import DEFAULT, DEPTH, OTHER_DEPTHS, Effort
from bench.figures import BadMeasurement, Figure, median, ratio
from bench.probes import (
    empty_probes,
    objects_seen,
    objects_with_native_stack,
    tracing,
    undisturbed,
    wait_until_probed,
)
from bench.workers import Cost, Worker
from gpuheap.tracer import Tracer

NATIVE_DEPTHS: Final = (10, 50, 150)
MISSED: Final = 0.01
"""So large a part of the allocations may have come before the agent knew their stack."""


def native_calls(built: Built, interpreter: Path, effort: Effort = DEFAULT) -> Iterator[Figure]:
    """Ratios to the empty pair. Raises BadMeasurement."""
    with empty_probes(built), tracing(built, native_stacks=True) as tracer:
        for depth in (DEPTH, *OTHER_DEPTHS):
            cost = undisturbed(partial(measured, built, interpreter, tracer, depth, 0, effort))
            yield ratio(
                f"alloc_python{depth}_native_over_pair", cost[TRACED].allocate_ns, cost[EMPTY].allocate_ns
            )
        for native in NATIVE_DEPTHS:
            cost = undisturbed(partial(measured, built, interpreter, tracer, DEPTH, native, effort))
            yield ratio(f"alloc_native{native}_over_pair", cost[TRACED].allocate_ns, cost[EMPTY].allocate_ns)
            yield median(f"alloc_native{native}_ns", cost[TRACED].allocate_ns, "ns")


def measured(
    built: Built, interpreter: Path, tracer: Tracer, depth: int, native: int, effort: Effort
) -> dict[str, Cost]:
    """`native`: C functions between the Python functions and the driver. Raises BadMeasurement."""
    with Worker(interpreter, built, tracer.poll) as worker:
        worker.load({name: built.drivers[name] for name in (PLAIN, EMPTY, TRACED)})
        wait_until_probed(worker, [EMPTY, TRACED])
        cost = worker.measure(
            [EMPTY, TRACED], depth=depth, rounds=effort.rounds, count=effort.count, native=native
        )
        reading = tracer.read()
        seen, made = objects_seen(reading, worker.pid), worker.allocations(TRACED)
        whole = objects_with_native_stack(reading, worker.pid, native + 1)
    # Those of the warming, which are few, have fewer frames.
    if seen != made or whole < (1 - MISSED) * effort.rounds * effort.count:
        raise BadMeasurement(f"of {made} allocations the tracer saw {seen}, {whole} with all native frames")
    return cost
