# SPDX-License-Identifier: Apache-2.0
from gpuheap.profile.views import Key, in_order, views

PYTHON = ("python", "1")
WORKER = ("worker", "2")


def shown(*keys: Key) -> list[tuple[str, str, list[str]]]:
    return [(view.process, view.memory, list(view.parts.values())) for view in views(keys)]


def test_a_process_has_a_view_of_each_kind_and_device_and_of_its_gpus_together() -> None:
    found = shown(
        Key(*PYTHON, "device", "1", "GPU-b"),
        Key(*PYTHON, "device", "0", "GPU-a"),
        Key(*PYTHON, "pinned_host", "host", ""),
    )
    name = "python (pid 1)"
    assert found == [
        (name, "device memory on GPU 1", [name]),
        (name, "device memory on GPU 0", [name]),
        (name, "device memory on all GPUs", ["GPU 1", "GPU 0"]),
        (name, "pinned host memory", [name]),
    ]


def test_all_processes_are_shown_by_kind() -> None:
    found = shown(
        Key(*PYTHON, "device", "0", "GPU-a"),
        Key(*WORKER, "managed", "0", "GPU-a"),
        Key(*WORKER, "device", "0", "GPU-a"),
        Key(*PYTHON, "managed", "0", "GPU-a"),
        Key(*PYTHON, "graph", "0", "GPU-a"),
    )
    both = ["python (pid 1)", "worker (pid 2)"]
    assert found[-2:] == [
        ("all processes", "device memory on GPU 0", both),
        ("all processes", "managed memory on GPU 0", both[::-1]),
    ], "graph memory is one process's alone"


def test_a_gpu_that_processes_share_is_known_by_its_uuid() -> None:
    found = shown(
        Key(*PYTHON, "device", "0", "GPU-a"),
        Key(*PYTHON, "device", "1", "GPU-b"),
        Key(*WORKER, "device", "0", "GPU-b"),
    )
    assert found[-2:] == [
        (
            "all processes",
            "device memory on all GPUs",
            ["python (pid 1), GPU 0", "python (pid 1), GPU 1", "worker (pid 2), GPU 0"],
        ),
        ("all processes", "device memory on GPU-b", ["python (pid 1), GPU 1", "worker (pid 2), GPU 0"]),
    ], "each process has its own number for it"


def test_samples_without_labels_are_one_view_without_memory() -> None:
    assert shown(Key("", "", "", "", "")) == [("all samples", "", ["all samples"])]


def test_samples_without_a_kind_beside_others_are_named_so() -> None:
    found = shown(Key("", "", "device", "0", ""), Key("", "", "", "", ""))
    assert [memory for _, memory, _ in found] == ["device memory on GPU 0", "memory of no known kind"]


def test_device_memory_with_something_in_use_comes_first() -> None:
    device, empty = Key(*PYTHON, "device", "0", ""), Key(*WORKER, "device", "0", "")
    managed, pinned = Key(*PYTHON, "managed", "0", ""), Key(*WORKER, "pinned_host", "host", "")
    totals = {empty: (99, 0), pinned: (9, 900), managed: (9, 90), device: (1, 10)}
    assert in_order(totals, 1) == [device, managed, pinned, empty]
