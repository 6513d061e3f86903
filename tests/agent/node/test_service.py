# SPDX-License-Identifier: Apache-2.0
"""The loop on a played clock: each poll lets its whole time-out pass."""

import threading
from collections.abc import Iterable, Sequence

from gpuheap.heap.model import Reading
from gpuheap.node.grid import NANOSECONDS
from gpuheap.node.pushes import Push
from gpuheap.node.service import STALE_SECONDS, Service
from gpuheap.node.settings import AgentSettings
from gpuheap.profile.decode import decode
from gpuheap.profile.model import Profile
from tests.agent.heap.values import PYTHON, reading, site, totals
from tests.agent.node.played_source import PlayedSource

START = 1_796_000_002 * NANOSECONDS
SETTINGS = AgentSettings(
    pyroscope_url="http://p:4040",
    interval_seconds=15,
    metrics_host="h",
    metrics_port=1,
    node="n1",
    cluster="",
)


class Played:
    """Runs the service until the clock has gone on for `seconds`."""

    def __init__(self, readings: Sequence[Reading], seconds: float) -> None:
        self.now = START
        self.stop = threading.Event()
        self.end = START + round(seconds * NANOSECONDS)
        self.pushed: list[list[Push]] = []
        self.shown: list[Reading] = []
        self.source = PlayedSource(readings, self.pass_time)
        self.service = Service(
            SETTINGS,
            self.source,
            show=self.shown.append,
            sink=self,
            wall_clock_ns=lambda: self.now,
            monotonic=lambda: self.now / NANOSECONDS,
        )

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * NANOSECONDS)
        if self.now >= self.end:
            self.stop.set()

    def submit(self, pushes: Iterable[Push]) -> None:
        self.pushed.append(list(pushes))

    def run(self) -> list[list[Profile]]:
        self.service.run(self.stop)
        return [[decode(push.pprof, name="x") for push in pushes] for pushes in self.pushed]


def values(profiles: list[list[Profile]]) -> list[list[tuple[int, ...]]]:
    return [[sample.values for profile in some for sample in profile.samples] for some in profiles]


def test_allocations_are_pushed_by_interval_and_use_as_it_is() -> None:
    readings = [reading({site("load"): totals(n)}) for n in (0, 100, 250, 300)]
    profiles = Played(readings, seconds=30).run()
    assert values(profiles) == [[(10, 100, 10, 100)], [(15, 150, 25, 250)], [(5, 50, 0, 0)]]


def test_times_lie_on_the_grid_and_the_last_push_lies_after_it() -> None:
    profiles = Played([reading({site("load"): totals(n)}) for n in (0, 10, 20, 30)], seconds=30).run()
    seconds = [some[0].time_unix_ns / NANOSECONDS for some in profiles]
    assert seconds[:2] == [1_796_000_010, 1_796_000_025]
    assert 1_796_000_025 < seconds[2] < 1_796_000_040


def test_the_first_interval_begins_with_the_service() -> None:
    profiles = Played([reading({site("load"): totals(10)})], seconds=14).run()
    assert profiles[0][0].duration_ns == 8 * NANOSECONDS


def test_a_service_that_is_stopped_at_once_pushes_what_was_allocated() -> None:
    assert values(Played([reading({site("load"): totals(10)})], seconds=1).run()) == [[(1, 10, 0, 0)]]


def test_ended_processes_are_forgotten_after_their_last_push() -> None:
    ended = reading({site("load"): totals(100, 100, 80)}, exited=frozenset({PYTHON}))
    played = Played([reading({}), ended, reading({})], seconds=30)
    assert values(played.run())[0] == [(10, 100, 0, 0)]
    assert played.source.forgotten == [frozenset({PYTHON})]


def test_losses_are_in_the_profile() -> None:
    lossy = reading({site("load"): totals(10)}, losses={"ring_full": 3})
    (note,) = Played([lossy], seconds=14).run()[0][0].notes
    assert note.startswith("lost or blurred: ring_full, 3 times: ")


def test_a_process_that_ran_before_is_said_to_lack_memory() -> None:
    late = reading({site("load"): totals(10)}, joined_late=frozenset({PYTHON}))
    assert Played([late], seconds=14).run()[0][0].notes == (
        "python (pid 4711) ran before tracing began: what it allocated before is in no figure",
    )


def test_metrics_are_there_before_the_first_push() -> None:
    first = reading({site("load"): totals(10)})
    played = Played([first, reading({})], seconds=1)
    played.run()
    assert played.shown[0] == first


def test_it_is_ready_after_the_first_poll_and_unhealthy_when_polls_stop() -> None:
    played = Played([reading({})], seconds=1)
    assert (played.service.healthy(), played.service.ready()) == (None, "the tracer was not polled yet")
    played.run()
    assert (played.service.healthy(), played.service.ready()) == (None, None)
    played.now += round((STALE_SECONDS + 1) * NANOSECONDS)
    assert played.service.healthy() == "the tracer was polled last 31 s ago"
    assert played.service.ready() == played.service.healthy()
