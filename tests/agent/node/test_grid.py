# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.node.grid import NANOSECONDS, Grid


def at(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def test_points_are_multiples_of_the_interval() -> None:
    grid = Grid(15, at(1000.2))
    assert grid.due(at(1004.9)) is None
    assert grid.due(at(1005.1)) == at(1005)
    assert grid.due(at(1005.2)) is None, "each point is handed out once"
    assert grid.due(at(1020)) == at(1020)


def test_missed_points_are_left_out() -> None:
    assert Grid(15, at(1000)).due(at(1100)) == at(1095)


def test_a_clock_that_was_set_back_starts_again_from_there() -> None:
    grid = Grid(15, at(1000))
    assert grid.due(at(400)) is None
    assert grid.due(at(406)) == at(405)


@given(interval=st.integers(1, 3600), moments=st.lists(st.integers(0, 10**13), min_size=1, max_size=20))
def test_whatever_the_clock_does_points_lie_on_the_grid_within_one_interval(
    interval: int, moments: list[int]
) -> None:
    grid = Grid(interval, 0)
    for now in moments:
        point = grid.due(now)
        assert point is None or (
            point % (interval * NANOSECONDS) == 0 and 0 <= now - point < interval * NANOSECONDS
        )
        assert 0 < grid.seconds_left(now) <= interval
