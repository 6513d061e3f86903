# SPDX-License-Identifier: Apache-2.0
"""Numbers are counted by hand from `examples.example`."""

from typing import Any

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.profile.model import Profile
from gpuheap.profile.tree import page_data
from tests.agent.heap.values import totals
from tests.agent.profile.examples import APPLY, INIT, MODULE, RESERVE, at, example, of, several_kinds

IN_USE = 3


def functions(data: dict[str, Any], process: str) -> dict[str, tuple[int, int]]:
    (found,) = [entry for entry in data["views"] if entry["process"] == process]
    return {data["frames"][row[0]][0]: (row[2][IN_USE], row[3][IN_USE]) for row in found["functions"][0]}


def test_the_process_with_the_most_in_use_comes_first_and_all_together_last() -> None:
    processes = [view["process"] for view in page_data(example())["views"]]
    assert processes == ["python (pid 4711)", "worker (pid 4712)", "all processes"]


def test_a_single_process_needs_no_view_of_all() -> None:
    assert [view["process"] for view in page_data(of({at(MODULE): totals(10)}))["views"]] == [
        "python (pid 4711)"
    ]


def test_values_of_two_memory_kinds_are_never_added_up() -> None:
    data = page_data(several_kinds())
    totals_of = {
        (view["process"], view["memory"]): sum(row[2][IN_USE] for row in view["functions"][0])
        for view in data["views"]
    }
    assert totals_of == {
        ("python (pid 4711)", "device memory on GPU 0"): 600,
        ("python (pid 4711)", "device memory on GPU 1"): 100,
        ("python (pid 4711)", "device memory on all GPUs"): 700,
        ("python (pid 4711)", "managed memory on GPU 0"): 50,
        ("python (pid 4711)", "pinned host memory"): 2000,
        ("worker (pid 4712)", "device memory on GPU 1"): 40,
        ("all processes", "device memory on all GPUs"): 740,
        ("all processes", "device memory on GPU-bbbb"): 140,
    }


def test_the_parts_of_a_view_are_its_groups() -> None:
    data = page_data(several_kinds())
    (view,) = [view for view in data["views"] if view["memory"] == "device memory on GPU-bbbb"]
    assert [(data["groups"][number]["gpu"], name) for number, name in view["parts"]] == [
        ("GPU-bbbb", "python (pid 4711), GPU 1"),
        ("GPU-bbbb", "worker (pid 4712), GPU 1"),
    ]


def test_a_node_has_what_its_stacks_have() -> None:
    data = page_data(example())
    nodes = data["groups"][0]["nodes"][0]
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
    assert sorted(node[2] for node in nodes["groups"][0]["nodes"][0]) == [31, 32, 120, 804, 804]


def test_a_profile_without_samples_has_no_views() -> None:
    assert page_data(Profile(samples=(), time_unix_ns=1, duration_ns=1))["views"] == []


def test_a_profile_without_plumbing_and_internals_is_shown_in_one_way() -> None:
    assert page_data(example())["details"] == ["plain"]


def test_frames_are_shown_without_the_interpreter_first_and_can_be_folded_or_all_be_had() -> None:
    call = Frame(function="_PyObject_Call", file="/usr/bin/python3.12", kind=FrameKind.NATIVE)
    empty = Frame(function="at::empty()", file="/srv/torch/lib/libtorch_cpu.so", kind=FrameKind.NATIVE)
    data = page_data(of({at(call, MODULE, RESERVE, empty): totals(10)}))
    names = [[data["frames"][node[1]][0] for node in nodes] for nodes in data["groups"][0]["nodes"]]
    assert dict(zip(data["details"], names, strict=True)) == {
        "plain": ["<module>", "KVCache.reserve", "at::empty()"],
        "folded": ["<module>", "KVCache.reserve"],
        "all": ["_PyObject_Call", "<module>", "KVCache.reserve", "at::empty()"],
    }
    tables = [
        {data["frames"][row[0]][0]: row[2][IN_USE] for row in rows} for rows in data["views"][0]["functions"]
    ]
    assert tables[1] == {"<module>": 0, "KVCache.reserve": 10}
