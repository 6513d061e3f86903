# SPDX-License-Identifier: Apache-2.0
"""The same object under other kernels: the answers of the kernel that runs here, and those of a count by hand."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.debian import NotObtainable
from tests.kernels import archive, machine
from tests.kernels.program import MIB
from tests.standin.build import StandIn, build

pytestmark = [pytest.mark.bpf, pytest.mark.kernels, pytest.mark.timeout(1500)]

BTF: Final = Path("/sys/kernel/btf/vmlinux")
INSIDE: Final = Path(__file__).with_name("inside.py")
PROGRAM: Final = Path(__file__).with_name("program.py")


def row(allocated: tuple[int, int], freed: tuple[int, int], at_exit: tuple[int, int]) -> dict[str, list[int]]:
    """Bytes and objects; a freed figure includes what an end released."""
    return {"allocated": [*allocated], "freed": [*freed], "released_at_exit": [*at_exit]}


COUNTED_BY_HAND: Final = {
    # three layers of 4 MiB stay; five activations of 1 MiB go
    "model device 0": row((17 * MIB, 8), (5 * MIB, 5), (0, 0)),
    "child device 0": row((2 * MIB, 1), (2 * MIB, 1), (2 * MIB, 1)),
    "leave device 0": row((3 * MIB, 1), (3 * MIB, 1), (3 * MIB, 1)),
    "arrive device 0": row((6 * MIB, 1), (6 * MIB, 1), (6 * MIB, 1)),
    # 1 MiB three times by a thread, 4 MiB by the main one
    "die device 0": row((7 * MIB, 4), (7 * MIB, 4), (7 * MIB, 4)),
    # 3 MiB of a stream and 4 MiB of physical memory went; 2 MiB without a handle are mapped
    "mix device 0": row((9 * MIB, 3), (7 * MIB, 2), (0, 0)),
    "mix managed 0": row((8 * MIB, 1), (0, 0), (0, 0)),
    "mix pinned_host host": row((MIB, 1), (0, 0), (0, 0)),
}
CALLED: Final = {
    "model device": {
        "<module>;main;model;Model.build;Layer.__init__;Driver.allocate": 12 * MIB,
        "<module>;main;model;Model.infer;Driver.allocate": 5 * MIB,
    },
    "child device": {"<module>;main;model;Model.fork;Driver.allocate": 2 * MIB},
    "leave device": {"<module>;main;leave;Driver.allocate": 3 * MIB},
    "arrive device": {"<module>;main;arrive;Driver.allocate": 6 * MIB},
    "die device": {
        "Thread._bootstrap;Thread._bootstrap_inner;Thread.run;lend;Driver.allocate": 3 * MIB,
        "<module>;main;die;Driver.allocate": 4 * MIB,
    },
    "mix device": {
        "<module>;main;mix;Driver.call": 3 * MIB,
        "<module>;main;mix;physical;Driver.call": 6 * MIB,
    },
    "mix managed": {"<module>;main;mix;Driver.call": 8 * MIB},
    "mix pinned_host": {"<module>;main;mix;Driver.call": MIB},
}
OUT_OF_MEMORY: Final = {"model 2": 2}
THREAD_ROOTS: Final = ("python", "libc.so")
"""Whose code is outermost on a stack that was unwound to its end: that of the program, or of a thread's start."""

COMPARED: Final = ("totals", "stacks", "libraries", "failures", "exited")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> machine.Job:
    driver: StandIn = build(tmp_path_factory.mktemp("driver"))
    return machine.Job(script=INSIDE, files=(PROGRAM, driver.library), environment=driver.environment())


@pytest.fixture(scope="module")
def here(job: machine.Job) -> dict[str, Any]:
    answer: dict[str, Any] = machine.run_here(job)
    return answer


@pytest.fixture(scope="module", params=archive.RELEASES, ids=[release.series for release in archive.RELEASES])
def there(
    request: pytest.FixtureRequest, job: machine.Job, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the script answers under the kernel of one release."""
    release: archive.Release = request.param
    try:
        kernel = archive.kernel(release)
        archive.emulator()
    except NotObtainable as error:
        pytest.skip(str(error))
    answer = machine.run_under(kernel, job, tmp_path_factory.mktemp(release.series))
    assert answer["kernel"] == kernel.release
    return dict(answer)


def by_functions(stacks: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Without the lines, which only the comparison of two kernels holds; what differs in these only is one stack."""
    found: dict[str, dict[str, int]] = {}
    for part, sizes in stacks.items():
        sums = found.setdefault(part, {})
        for stack, size in sizes.items():
            key = ";".join(frame.rpartition(":")[0] for frame in stack.split(";"))
            sums[key] = sums.get(key, 0) + size
    return found


def test_the_kernel_that_runs_here_gives_what_was_counted_by_hand(here: dict[str, Any]) -> None:
    assert here["totals"] == COUNTED_BY_HAND
    assert by_functions(here["stacks"]) == CALLED
    assert here["failures"] == OUT_OF_MEMORY
    assert all(stack.startswith(THREAD_ROOTS) for stacks in here["libraries"].values() for stack in stacks)


def test_another_kernel_gives_what_was_counted_by_hand(there: dict[str, Any]) -> None:
    assert there.get("error") is None
    assert there["totals"] == COUNTED_BY_HAND
    assert by_functions(there["stacks"]) == CALLED
    assert there["failures"] == OUT_OF_MEMORY
    assert there["losses"] == {}, "nothing else runs there, and nothing was lost"


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
