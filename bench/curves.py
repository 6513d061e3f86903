# SPDX-License-Identifier: Apache-2.0
"""How the cost of a call grows with what is live, with threads and with processes. It should not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.build import EMPTY, PLAIN, TRACED, Built
from bench.calls import DEPTH
from bench.figures import BadMeasurement, Figure, median, ratio, single
from bench.probes import empty_probes, tracing, undisturbed, wait_until_probed
from bench.workers import Cost, Worker, costs
from gpuheap.tracer import Tracer

LIVE: Final = (100, 10_000, 1_000_000)
THREADS: Final = (1, 4, 16, 64)
PROCESSES: Final = (1, 4, 16)
CAPACITY: Final = 1 << 22
"""Of live allocations. One process may have a part of it: room for the longest curve, and what is measured on top."""

COUNT: Final = 500
ROUNDS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place on a curve."""

    name: str
    cost: dict[str, Cost]


def curves(built: Built, interpreter: Path) -> Iterator[Figure]:
    """Ratios to the empty pair, which has as many threads or processes itself; and nanoseconds, to see its own curve.

    `alloc_growth_CURVE` is the ratio at the curve's end over that at its beginning: 1 for a cost that does not grow.
    """
    parts: tuple[Callable[[Built, Path, Tracer], Iterator[Point]], ...] = (_live, _threads, _processes)
    for part in parts:
        with empty_probes(built), tracing(built, CAPACITY) as tracer:
            points = list(part(built, interpreter, tracer))
            _check(tracer, part.__name__)
        yield from (figure for point in points for figure in _figures(point))
        yield from _growth(part.__name__.strip("_"), points[0], points[-1])


def _live(built: Built, interpreter: Path, tracer: Tracer) -> Iterator[Point]:
    with Worker(interpreter, built, tracer.poll) as worker:
        _prepare(worker, built)
        held = 0
        for live in LIVE:
            worker.ask({"do": "hold", "driver": TRACED, "depth": DEPTH, "count": live - held})
            held = live
            cost = _cost(worker, 3 * ROUNDS)
            yield Point(name=f"live_{live}", cost=cost)


def _threads(built: Built, interpreter: Path, tracer: Tracer) -> Iterator[Point]:
    with Worker(interpreter, built, tracer.poll) as worker:
        _prepare(worker, built)
        for threads in THREADS:
            cost = _cost(worker, max(4, 3 * ROUNDS // threads), threads)
            yield Point(name=f"threads_{threads}", cost=cost)


def _processes(built: Built, interpreter: Path, tracer: Tracer) -> Iterator[Point]:
    with ExitStack() as running:
        workers: list[Worker] = []
        for processes in PROCESSES:
            while len(workers) < processes:
                workers.append(running.enter_context(Worker(interpreter, built, tracer.poll)))
                _prepare(workers[-1], built)
            cost = undisturbed(partial(_at_once, workers, max(4, 3 * ROUNDS // processes)))
            yield Point(name=f"processes_{processes}", cost=cost)


def _at_once(workers: list[Worker], rounds: int) -> dict[str, Cost]:
    """All of them with the empty probes, all of them with the tracer's, and so on in turns."""
    turns = 4
    pooled: dict[str, Cost] = {name: Cost(allocate_ns=[], free_ns=[]) for name in (EMPTY, TRACED)}
    for _ in range(turns):
        for name, pool in pooled.items():
            request = {
                "do": "measure",
                "drivers": [name],
                "depth": DEPTH,
                "rounds": max(1, rounds // turns),
                "count": COUNT,
            }
            for worker in workers:
                worker.begin(request)
            for worker in workers:
                cost = costs(worker.answer())[name]
                pool.allocate_ns.extend(cost.allocate_ns)
                pool.free_ns.extend(cost.free_ns)
    return pooled


def _cost(worker: Worker, rounds: int, threads: int = 1) -> dict[str, Cost]:
    return undisturbed(
        partial(worker.measure, [EMPTY, TRACED], depth=DEPTH, rounds=rounds, count=COUNT, threads=threads)
    )


def _prepare(worker: Worker, built: Built) -> None:
    worker.load({name: built.drivers[name] for name in (PLAIN, EMPTY, TRACED)})
    wait_until_probed(worker, [EMPTY, TRACED])


def _figures(point: Point) -> Iterator[Figure]:
    traced, empty = point.cost[TRACED], point.cost[EMPTY]
    yield ratio(f"alloc_over_pair_{point.name}", traced.allocate_ns, empty.allocate_ns)
    yield ratio(f"free_over_pair_{point.name}", traced.free_ns, empty.free_ns)
    yield median(f"alloc_ns_{point.name}", traced.allocate_ns, "ns")
    yield median(f"free_ns_{point.name}", traced.free_ns, "ns")
    yield median(f"pair_ns_{point.name}", empty.allocate_ns, "ns")


def _growth(curve: str, first: Point, last: Point) -> Iterator[Figure]:
    for call, place in (("alloc", 0), ("free", 1)):
        begins, ends = (list(_figures(point))[place].value for point in (first, last))
        yield single(f"{call}_growth_{curve}", ends / begins, "ratio")


def _check(tracer: Tracer, part: str) -> None:
    """A full map makes calls cheaper than they are. Raises BadMeasurement."""
    full = {
        reason: count
        for reason, count in tracer.read().losses.items()
        if count and reason.endswith("_full") and reason != "ring_full"
    }
    if full:
        raise BadMeasurement(f"the curve {part.strip('_')} is not valid: {full} were lost")
