# SPDX-License-Identifier: Apache-2.0
"""Numbers are counted by hand from `examples.example`."""

from typing import Any

from gpuheap.heap.model import Frame
from gpuheap.profile.model import Profile, Sample
from gpuheap.profile.tree import page_data
from tests.agent.heap.values import totals
from tests.agent.profile.examples import APPLY, INIT, MODULE, at, example, of

IN_USE = 3


def functions(data: dict[str, Any], view: str) -> dict[str, tuple[int, int]]:
    (found,) = [entry for entry in data["views"] if entry["label"] == view]
    return {data["frames"][row[0]][0]: (row[2][IN_USE], row[3][IN_USE]) for row in found["functions"]}


def test_the_process_with_the_most_in_use_comes_first_and_all_together_last() -> None:
    labels = [view["label"] for view in page_data(example())["views"]]
    assert labels == ["python (pid 4711)", "worker (pid 4712)", "all processes"]


def test_a_single_process_needs_no_view_of_all() -> None:
    assert [view["label"] for view in page_data(of({at(MODULE): totals(10)}))["views"]] == [
        "python (pid 4711)"
    ]


def test_values_of_two_memory_kinds_are_never_added_up() -> None:
    samples = tuple(
        Sample(stack=(MODULE,), values=(1, 1, 1, 1), labels=(("kind", kind), ("pid", pid)))
        for kind in ("device", "managed")
        for pid in ("1", "2")
    )
    views = page_data(Profile(samples=samples, time_unix_ns=1, duration_ns=1))["views"]
    assert [view["label"] for view in views][-2:] == ["all processes (device)", "all processes (managed)"]
    assert [functions[0][3][IN_USE] for functions in (view["functions"] for view in views)] == [
        1,
        1,
        1,
        1,
        2,
        2,
    ]


def test_a_node_has_what_its_stacks_have() -> None:
    data = page_data(example())
    nodes = data["groups"][0]["nodes"]
    found = [(data["frames"][node[1]][0], node[2], node[0], node[3 + IN_USE]) for node in nodes]
    assert found == [
        ("<module>", 120, -1, 600),
        ("Engine.__init__", 31, 0, 600),
        ("Module._apply", 804, 1, 400),
        ("Module._apply", 804, 2, 400),
        ("KVCache.reserve", 41, 1, 200),
        ("<interpreter not supported>", 0, -1, 100),
    ]


def test_a_recursive_function_counts_once_in_the_table() -> None:
    assert functions(page_data(example()), "python (pid 4711)")["Module._apply"] == (400, 400)


def test_the_table_of_all_processes_adds_them_up() -> None:
    assert functions(page_data(example()), "all processes")["<module>"] == (0, 650)


def test_two_lines_of_one_function_are_two_nodes() -> None:
    other = Frame(function=INIT.function, file=INIT.file, line=INIT.line + 1)
    nodes = page_data(of({at(MODULE, INIT, APPLY): totals(10), at(MODULE, other, APPLY): totals(20)}))
    assert sorted(node[2] for node in nodes["groups"][0]["nodes"]) == [31, 32, 120, 804, 804]


def test_a_profile_without_samples_has_no_views() -> None:
    assert page_data(Profile(samples=(), time_unix_ns=1, duration_ns=1))["views"] == []
