# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.heap.functions import NO_STACK, by_function, heaviest
from gpuheap.heap.model import Frame
from tests.agent.heap.values import frames, stacks

weighted = st.lists(st.tuples(stacks, st.tuples(st.integers(0, 1000), st.integers(0, 1000))), max_size=12)


def test_self_belongs_to_the_leaf_and_total_to_every_caller() -> None:
    rows = {
        row.function: row for row in by_function([(frames("main", "load"), (5,)), (frames("main"), (2,))])
    }
    assert (rows["main"].own, rows["main"].total) == ((2,), (7,))
    assert (rows["load"].own, rows["load"].total) == ((5,), (5,))


def test_a_recursive_function_counts_once() -> None:
    (row,) = by_function([(frames("walk:3", "walk:3", "walk:4"), (10,))])
    assert (row.own, row.total) == ((10,), (10,))
    assert row.lines == {3: (10,), 4: (10,)}, "each line that was executing, once"


def test_functions_of_one_name_in_two_files_are_two() -> None:
    stacks_of_two = [((Frame(function="f", file=file),), (1,)) for file in ("a.py", "b.py")]
    assert [(row.function, row.file) for row in by_function(stacks_of_two)] == [("f", "a.py"), ("f", "b.py")]


def test_bytes_without_a_stack_stay_visible() -> None:
    (row,) = by_function([((), (7,))])
    assert (row.function, row.own) == (NO_STACK.function, (7,))


def test_the_heaviest_line_is_the_one_with_the_largest_total() -> None:
    (row,) = by_function([(frames("load:8"), (1,)), (frames("load:9"), (5,)), (frames("load:7"), (2,))])
    assert row.heaviest_line(0) == 9


def test_the_heaviest_function_by_self_comes_first_and_empty_ones_are_left_out() -> None:
    rows = by_function([(frames("main", "a"), (1,)), (frames("main", "b"), (5,)), (frames("idle"), (0,))])
    assert [row.function for row in heaviest(rows, 0, 10)] == ["b", "a", "main"]
    assert [row.function for row in heaviest(rows, 0, 1)] == ["b"]


@given(stacks_with_values=weighted)
def test_self_over_all_functions_is_the_whole(
    stacks_with_values: list[tuple[tuple[Frame, ...], tuple[int, int]]],
) -> None:
    rows = by_function(stacks_with_values)
    for measure in (0, 1):
        assert sum(row.own[measure] for row in rows) == sum(
            values[measure] for _, values in stacks_with_values
        )


@given(stacks_with_values=weighted)
def test_self_is_at_most_total_and_total_at_most_the_whole(
    stacks_with_values: list[tuple[tuple[Frame, ...], tuple[int, int]]],
) -> None:
    whole = sum(values[0] for _, values in stacks_with_values)
    for row in by_function(stacks_with_values):
        assert 0 <= row.own[0] <= row.total[0] <= whole
        assert all(line[0] <= row.total[0] for line in row.lines.values())
