# SPDX-License-Identifier: Apache-2.0
"""Many native stacks, new ones, at a steady rate: whether each is found, and none is taken for another.

The program begins with all of them at once, so copies of stacks compete for what may be copied in a moment. It has
real-time priority: other work on the machine slows the agent and not the allocations.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.build import PLAIN, TRACED, Built
from bench.calls import DEPTH
from bench.figures import BadMeasurement, Figure, single
from bench.probes import tracing, undisturbed, wait_until_probed
from bench.workers import Worker
from gpuheap.heap.model import Reading

STACKS: Final = 119
RATE: Final = 25_000
SECONDS: Final = 4.0
FUNCTION: Final = "measure_below"
"""Of loop.c: the stack with the number n has n of them."""

LIMITED: Final = ("snapshot_rate", "snapshot_ring_full")


def snapshots(built: Built, interpreter: Path, seconds: float = SECONDS) -> Iterator[Figure]:
    """Raises BadMeasurement."""
    yield from undisturbed(lambda: list(_measured(built, interpreter, seconds)))


def _measured(built: Built, interpreter: Path, seconds: float) -> Iterator[Figure]:
    with tracing(built, native_stacks=True) as tracer, Worker(interpreter, built, tracer.poll) as worker:
        worker.load({name: built.drivers[name] for name in (PLAIN, TRACED)})
        wait_until_probed(worker, [TRACED])
        worker.go_first()
        before = tracer.read()
        request = {"do": "mix", "driver": TRACED, "depth": DEPTH, "rate": RATE, "seconds": seconds}
        answer = worker.ask({**request, "stacks": STACKS})
        after = tracer.read()
    found = _by_number(after, worker.pid)
    made = int(answer["each"])
    wrong = {number: count for number, count in found.items() if count > made or number > STACKS}
    if wrong:
        raise BadMeasurement(f"of {made} allocations by each stack, these were seen: {wrong}")
    yield single("snapshots_allocations_per_second", made * STACKS / answer["seconds"], "1/s")
    yield single("snapshots_stacks_made", STACKS, "stacks")
    yield single("snapshots_stacks_found", len(found), "stacks")
    missed = 100 * (1 - sum(found.values()) / (made * STACKS))
    yield single("snapshots_without_stack_percent", missed, "% of allocations")
    limited = sum(after.losses[reason] - before.losses[reason] for reason in LIMITED)
    yield single("snapshots_refused", limited, "copies")


def _by_number(reading: Reading, pid: int) -> Counter[int]:
    """Allocations by the number of their stack."""
    found: Counter[int] = Counter()
    for site, totals in reading.totals.items():
        number = sum(frame.function == FUNCTION for frame in site.stack)
        if site.process.pid == pid and number:
            found[number] += totals.allocated_objects
    return found
