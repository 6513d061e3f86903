# SPDX-License-Identifier: Apache-2.0
from hypothesis import given

from gpuheap.heap.model import MemoryKind, Process, Reading, Site, Totals
from gpuheap.heap.totals import NOTHING, add, between, by_process, subtract, total
from tests.agent.heap.values import GPU_0, GPU_1, PYTHON, WORKER, events, reading, site, totals


def cumulated(intervals: list[dict[Site, Totals]]) -> list[Reading]:
    """The readings after each interval, as a tracer counts: since the beginning."""
    result: list[Reading] = []
    sums: dict[Site, Totals] = {}
    for interval in intervals:
        sums = {**sums, **{one: add(sums.get(one, NOTHING), change) for one, change in interval.items()}}
        result.append(reading(dict(sums)))
    return result


def test_what_happened_between_two_readings_is_their_difference() -> None:
    earlier = reading({site("load"): totals(100, 20)})
    later = reading({site("load"): totals(150, 90)})
    assert between(earlier, later) == {site("load"): totals(50, 70)}


def test_without_an_earlier_reading_everything_is_new() -> None:
    assert between(None, reading({site("load"): totals(100)})) == {site("load"): totals(100)}


def test_a_site_where_nothing_happened_is_left_out() -> None:
    same = reading({site("load"): totals(100)})
    assert between(same, same) == {}


def test_a_reused_pid_starts_at_zero() -> None:
    reused = Process(pid=PYTHON.pid, start_ns=PYTHON.start_ns + 1, name=PYTHON.name)
    earlier = reading({site("load"): totals(100)})
    later = reading({site("load"): totals(100, 100, 100), site("load", process=reused): totals(30)})
    assert between(earlier, later)[site("load", process=reused)] == totals(30), (
        "the old process's bytes are not its"
    )


def test_a_forgotten_process_adds_nothing() -> None:
    earlier = reading({site("load"): totals(100, 100, 100), site("step", process=WORKER): totals(10)})
    later = reading({site("step", process=WORKER): totals(10)})
    assert between(earlier, later) == {}


def test_a_counter_that_fell_has_started_again() -> None:
    assert between(reading({site("load"): totals(100)}), reading({site("load"): totals(40)})) == {
        site("load"): totals(40)
    }


@given(intervals=events())
def test_differences_add_up_to_the_whole(intervals: list[dict[Site, Totals]]) -> None:
    first, second, third = cumulated(intervals)
    whole = between(first, third)
    parts = [between(first, second), between(second, third)]
    for one in third.totals:
        assert add(parts[0].get(one, NOTHING), parts[1].get(one, NOTHING)) == whole.get(one, NOTHING)


@given(intervals=events())
def test_groups_together_have_all_that_the_sites_of_a_kind_have(intervals: list[dict[Site, Totals]]) -> None:
    last = cumulated(intervals)[-1]
    for kind in MemoryKind:
        grouped = total(totals for group, totals in by_process(last.totals).items() if group.kind is kind)
        assert grouped == total(totals for one, totals in last.totals.items() if one.kind is kind)
    assert {group.process for group in by_process(last.totals)} == {one.process for one in last.totals}


def test_kinds_and_devices_of_a_process_are_groups_of_their_own() -> None:
    assert by_process(
        {
            site("load"): totals(100),
            site("step", thread_id=2, call="cuMemAlloc_v2"): totals(50),
            site("load", device=GPU_1): totals(7),
            site("load", kind=MemoryKind.MANAGED): totals(3),
        }
    ) == {
        (PYTHON, MemoryKind.DEVICE, GPU_0): totals(150),
        (PYTHON, MemoryKind.DEVICE, GPU_1): totals(7),
        (PYTHON, MemoryKind.MANAGED, GPU_0): totals(3),
    }


def test_subtracting_what_was_added_gives_the_first_back() -> None:
    assert subtract(add(totals(100, 20), totals(50, 10, 10)), totals(50, 10, 10)) == totals(100, 20)
