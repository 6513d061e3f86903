# SPDX-License-Identifier: Apache-2.0
"""The kernel that runs here: what was counted by hand, and the answers of the same object under other kernels."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kernels import machine, truth

pytestmark = [pytest.mark.bpf, pytest.mark.kernels, pytest.mark.timeout(1500)]

BTF: Final = Path("/sys/kernel/btf/vmlinux")
THREAD_ROOTS: Final = ("python", "libc.so")
"""Whose code is outermost on a stack that was unwound to its end: that of the program, or of a thread's start."""

COMPARED: Final = ("totals", "stacks", "libraries", "failures", "exited")


@pytest.fixture(scope="module")
def here(job: machine.Job) -> dict[str, Any]:
    answer: dict[str, Any] = machine.run_here(job)
    return answer


def test_the_kernel_that_runs_here_gives_what_was_counted_by_hand(here: dict[str, Any]) -> None:
    assert here["totals"] == truth.COUNTED_BY_HAND
    assert truth.by_functions(here["stacks"]) == truth.CALLED
    assert here["failures"] == truth.OUT_OF_MEMORY
    assert all(stack.startswith(THREAD_ROOTS) for stacks in here["libraries"].values() for stack in stacks)


def test_another_kernel_gives_the_answers_of_the_one_that_runs_here(
    there: dict[str, Any], here: dict[str, Any]
) -> None:
    assert {name: there.get(name) for name in COMPARED} == {name: here[name] for name in COMPARED}


def test_a_kernel_that_is_too_old_is_refused_with_its_name_and_what_it_lacks(
    job: machine.Job, tmp_path: Path
) -> None:
    """The archive holds no kernel that old; a kernel whose type information lacks a name stands for one."""
    old = tmp_path / "btf"
    old.write_bytes(BTF.read_bytes().replace(b"\0BPF_MAP_TYPE_RINGBUF\0", b"\0BPF_MAP_TYPE_NOTHING\0"))
    answer = machine.run_here(job, hidden={BTF: old})
    assert os.uname().release in answer["error"]
    assert "ring buffer" in answer["error"]
    assert answer["type"] == "TracerUnavailable"
