# SPDX-License-Identifier: Apache-2.0
"""What a reader sees at the end of a recording; figures are counted by hand from the readings."""

from dataclasses import replace

import pytest

from gpuheap.cli.summary import show
from gpuheap.heap.model import HOST, Frame, FrameKind, MemoryKind, Process, Reading
from gpuheap.node.recording import End, Recording
from tests.agent.heap.values import GPU_1, PYTHON, WORKER, reading, site, totals

PINNED, MANAGED = MemoryKind.PINNED_HOST, MemoryKind.MANAGED


def printed(shown: Reading, capsys: pytest.CaptureFixture[str], *, notes: tuple[str, ...] = ()) -> list[str]:
    show(Recording(reading=shown, duration_ns=1_500_000_000, end=End.STOPPED), notes)
    out, errors = capsys.readouterr()
    assert out == "", "standard output is the recorded command's"
    return [line.removeprefix("gpuheap: ").rstrip() for line in errors.splitlines() if line.strip()]


def table(lines: list[str]) -> list[tuple[str, str]]:
    """Self and function of each row."""
    rows = [line.split() for line in lines if "app.py" in line]
    return [(" ".join(row[:2]), row[6]) for row in rows]


def test_one_kind_on_one_gpu_is_a_line_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(reading({site("main:1", "load:2"): totals(1000, 300)}), capsys)
    assert lines[0] == (
        "python (pid 4711): 700 B of device memory on GPU 0 in use when the recording was stopped, "
        "by 70 allocations; allocated in all 1000 B, by 100 allocations"
    )
    assert table(lines) == [("700 B", "load"), ("0 B", "main")]
    assert len(lines) == 4, "with the table's heading, and nothing else"


def test_the_table_has_who_called_the_libraries_that_ask(capsys: pytest.CaptureFixture[str]) -> None:
    malloc = Frame(function="cudaMalloc", file="/srv/libcudart.so.13", kind=FrameKind.NATIVE)
    load = site("main:1", "load:2")
    lines = printed(reading({replace(load, stack=(*load.stack, malloc)): totals(1000, 300)}), capsys)
    assert table(lines) == [("700 B", "load"), ("0 B", "main")]


def test_device_memory_has_the_table_although_there_is_more_of_another_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    several = {
        site("stage:4", kind=PINNED, device=HOST): totals(900),
        site("load:2"): totals(100),
        site("unify:3", kind=MANAGED): totals(50),
    }
    lines = printed(reading(several), capsys)
    assert [line.split(" in use")[0] for line in lines[:3]] == [
        "python (pid 4711): 100 B of device memory on GPU 0",
        "python (pid 4711): 50 B of managed memory on GPU 0",
        "python (pid 4711): 900 B of pinned host memory",
    ]
    assert lines[3] == "the functions below are those of device memory"
    assert table(lines) == [("100 B", "load")], "kinds are never added up"


def test_gpus_have_a_line_each_and_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(reading({site("load:2"): totals(100), site("load:2", device=GPU_1): totals(300)}), capsys)
    assert [line.split(" in use")[0].split(": ")[1] for line in lines[:2]] == [
        "300 B of device memory on GPU 1",
        "100 B of device memory on GPU 0",
    ]
    assert lines[2] == "the functions below are those of device memory on all GPUs"
    assert table(lines) == [("400 B", "load")]


def test_without_device_memory_the_heaviest_kind_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    several = {
        site("unify:3", kind=MANAGED): totals(50),
        site("stage:4", kind=PINNED, device=HOST): totals(900),
    }
    lines = printed(reading(several), capsys)
    assert lines[0].startswith("python (pid 4711): 900 B of pinned host memory")
    assert table(lines) == [("900 B", "stage")]


def test_device_memory_that_was_all_freed_shows_who_allocated(capsys: pytest.CaptureFixture[str]) -> None:
    several = {site("load:2"): totals(100, 100), site("stage:4", kind=PINNED, device=HOST): totals(900)}
    lines = printed(reading(several), capsys)
    assert "no device memory was in use; the functions below are those that allocated" in lines
    assert table(lines) == [("100 B", "load")]


def test_processes_come_in_the_order_of_their_device_memory(capsys: pytest.CaptureFixture[str]) -> None:
    several = {
        site("stage:4", process=PYTHON, kind=PINNED, device=HOST): totals(900),
        site("load:2", process=PYTHON): totals(10),
        site("load:2", process=WORKER): totals(20),
    }
    lines = [line for line in printed(reading(several), capsys) if "(pid" in line]
    assert [line.split()[0] for line in lines] == ["worker", "python", "python"]


def test_more_than_eight_processes_are_in_the_profile_only(capsys: pytest.CaptureFixture[str]) -> None:
    many = [Process(pid=pid, start_ns=1, name="p") for pid in range(1, 11)]
    lines = printed(reading({site("f:1", process=one): totals(one.pid * 10) for one in many}), capsys)
    assert [line for line in lines if "(pid" in line][-1].startswith("p (pid 3): 30 B")
    assert lines[-1] == "2 more processes in the profile"


def test_notes_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(reading({}), capsys, notes=("one", "two")) == [
        "no GPU memory was allocated in 1.5 s",
        "note: one",
        "note: two",
    ]
