# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory, by call, against the ledger that the stand-in driver keeps: exact to the byte."""

from collections.abc import Iterator
from dataclasses import fields

import pytest

from gpuheap.heap.model import Reading, Site, Totals
from gpuheap.tracer import Tracer, TracerOptions
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn
from tests.standin.player import Counts, Ledger, parse
from tests.standin.sequences import ENVIRONMENT, sequence

pytestmark = pytest.mark.bpf

SEEDS = range(12)
STEPS = 600
BATCH = 40


class Play:
    """A running `play` under the tracer."""

    def __init__(self, tracer: Tracer, standin: StandIn, **environment: str) -> None:
        self.program = Program(tracer, [standin.play], standin, environment=environment)
        self.tracer = tracer

    def batch(self, lines: list[str]) -> tuple[Reading, Ledger]:
        """What the tracer and the driver say after these lines."""
        self.program.write("\n".join([*lines, "checkpoint", ""]))
        ledger = parse(self.program.line())
        return self.tracer.read(), ledger


def rows(reading: Reading, pid: int) -> dict[tuple[str, int], Counts]:
    """By kind and device, as the ledger has them."""
    groups: dict[tuple[str, int], dict[Site, Totals]] = {}
    for site, totals in of(reading, pid).items():
        if site.call == "cuMemImportFromShareableHandle":
            continue  # of no size until it is mapped; the ledger leaves them out
        key = (site.kind.value, -2 if site.device.ordinal is None else site.device.ordinal)
        groups.setdefault(key, {})[site] = totals
    names = [field.name for field in fields(Counts)]
    return {
        key: Counts(**{name: getattr(total(group), name) for name in names}) for key, group in groups.items()
    }


def failures(reading: Reading, pid: int) -> dict[int, int]:
    return {code: count for (process, code), count in reading.failures.items() if process.pid == pid}


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Play]:
    played = Play(tracer, standin, **ENVIRONMENT)
    yield played
    played.program.kill()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_sequence_of_calls_leaves_tracer_and_driver_with_the_same_figures(play: Play, seed: int) -> None:
    lines = sequence(seed, STEPS)
    for start in range(0, len(lines), BATCH):
        reading, ledger = play.batch(lines[start : start + BATCH])
        where = f"after line {min(start + BATCH, len(lines))} of sequence({seed}, {STEPS})"
        assert rows(reading, play.program.pid) == ledger.kinds, where
        assert failures(reading, play.program.pid) == ledger.failed, where


def test_a_table_that_is_too_small_for_a_process_changes_no_figure(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    lines = sequence(3, STEPS, without=frozenset({"imported"}))
    with Tracer(TracerOptions(live_allocations=16)) as tracer:
        play = Play(tracer, standin, **ENVIRONMENT)
        for start in range(0, len(lines), BATCH):
            reading, ledger = play.batch(lines[start : start + BATCH])
            assert rows(reading, play.program.pid) == ledger.kinds, f"after line {start + BATCH}"
        assert reading.losses["spill_full"] == 0
        play.program.kill()
