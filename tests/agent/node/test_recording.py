# SPDX-License-Identifier: Apache-2.0
import threading

import pytest

from gpuheap.heap.notes import notes
from gpuheap.node.recording import End, profile, record
from tests.agent.heap.values import PYTHON, reading, site, totals
from tests.agent.node.played_source import PlayedSource


class Watched:
    """Ends after some looks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def ended(self) -> bool:
        self._looks -= 1
        return self._looks < 0


HELD = reading({site("load"): totals(100, 100, 80)}, exited=frozenset({PYTHON}), failures={(PYTHON, 2): 1})


def test_a_recording_ends_with_its_process_and_sees_its_end() -> None:
    source = PlayedSource([HELD])
    recording = record(source, Watched(3), stop=threading.Event(), seconds=None)
    assert (recording.end, recording.reading) == (End.PROCESS_ENDED, HELD)
    assert source.polls == 4, "three while it ran, and one for what the kernel reported last"


def test_a_recording_ends_when_it_is_stopped() -> None:
    stop = threading.Event()
    source = PlayedSource([HELD], on_poll=lambda _: stop.set())
    assert record(source, Watched(1000), stop=stop, seconds=None).end is End.STOPPED
    assert source.polls == 1, "the moment of Ctrl-C counts, not what comes after it"


def test_a_recording_ends_when_its_time_is_over() -> None:
    recording = record(PlayedSource([HELD]), Watched(10**9), stop=threading.Event(), seconds=0.05)
    assert recording.end is End.TIME_OVER
    assert recording.duration_ns >= 50_000_000


def test_the_profile_shows_what_an_ended_process_held_and_says_so() -> None:
    recording = record(PlayedSource([HELD]), Watched(0), stop=threading.Event(), seconds=None)
    made = profile(recording, notes(HELD))
    assert [sample.values for sample in made.samples] == [(10, 100, 8, 80)]
    assert made.notes == (
        "python (pid 4711) ended: shown as in use is what it held when it ended",
        "python (pid 4711): 1 allocation call failed with CUDA_ERROR_OUT_OF_MEMORY (2)",
    )


@pytest.mark.parametrize("looks", [0, 5])
def test_a_stop_goes_before_the_end_of_the_process(looks: int) -> None:
    stop = threading.Event()
    stop.set()
    assert record(PlayedSource([HELD]), Watched(looks), stop=stop, seconds=None).end is End.STOPPED
