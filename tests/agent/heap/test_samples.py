# SPDX-License-Identifier: Apache-2.0
"""The order of the numbers is alloc_objects, alloc_space, inuse_objects, inuse_space."""

from hypothesis import given

from gpuheap.heap.model import Site, Totals
from gpuheap.heap.samples import of_end, of_interval, of_recording
from gpuheap.heap.totals import total
from tests.agent.heap.test_totals import cumulated
from tests.agent.heap.values import events, reading, site, totals


def test_an_interval_shows_what_it_allocated_and_all_that_is_in_use() -> None:
    earlier, later = reading({site("load"): totals(100)}), reading({site("load"): totals(150, 20)})
    assert of_interval(earlier, later) == {site("load"): (5, 50, 13, 130)}


def test_memory_that_stays_in_use_is_shown_in_every_interval() -> None:
    same = reading({site("load"): totals(100)})
    assert of_interval(same, same) == {site("load"): (0, 0, 10, 100)}


def test_an_ended_process_has_nothing_in_use_in_an_interval() -> None:
    later = reading({site("load"): totals(150, 150, 130)})
    assert of_interval(reading({site("load"): totals(100)}), later) == {site("load"): (5, 50, 0, 0)}


def test_a_recording_shows_what_an_ended_process_held_at_its_end() -> None:
    assert of_recording({site("load"): totals(150, 150, 130)}) == {site("load"): (15, 150, 13, 130)}


def test_a_recording_shows_what_a_running_process_holds() -> None:
    assert of_recording({site("load"): totals(150, 20)}) == {site("load"): (15, 150, 13, 130)}


def test_the_last_push_has_nothing_in_use() -> None:
    earlier, later = (
        reading({site("load"): totals(100)}),
        reading({site("load"): totals(150), site("x"): totals(0)}),
    )
    assert of_end(earlier, later) == {site("load"): (5, 50, 0, 0)}


@given(intervals=events())
def test_allocations_of_all_intervals_are_those_of_the_recording(intervals: list[dict[Site, Totals]]) -> None:
    first, second, third = cumulated(intervals)
    pushed = [of_interval(None, first), of_interval(first, second), of_end(second, third)]
    assert (
        sum(values[1] for one in pushed for values in one.values())
        == total(third.totals.values()).allocated_bytes
    )
