# SPDX-License-Identifier: Apache-2.0
"""What a node leaves on the machine when the program that started it is killed. That a stopped one leaves nothing is
seen at the end of the fixture that all tests of this folder share.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localcloud.node import cgroups
from tests.localcloud.node.conftest import traces
from tests.waiting import wait_for

CHECKOUT = Path(__file__).resolve().parents[3]
PROGRAM = """
import os, sys
from pathlib import Path
from localcloud.node.configuration import CONTAINERD_SOCKET
from localcloud.node.images import Image
from localcloud.node.node import RealNode
from localcloud.toolchain import node_packages, resolve

state = Path(sys.argv[1])
kube = resolve().control_plane
node = RealNode(state, kube=kube, packages=node_packages.folder())
node.open()
try:
    node.start_runtime([Image(name="localhost/tools:1")])
    # As the kubelet would have it made: below the group of the node.
    group = f"/gpuheap-node-{os.getpid()}-1/kubepods/lives"
    run = ["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "run", "--detach", "--cgroup", group]
    node.namespaces.run([*run, "localhost/tools:1", "lives", "sleep", sys.argv[2]])
    print("running", flush=True)
    sys.stdin.read()
finally:
    node.stop()
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts a program that runs the runtime of a node, with one container that sleeps the given seconds."""

    def start(seconds: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        assert process.stdout
        assert process.stdout.readline() == "running\n"
        return process

    return start


def sleepers(seconds: str) -> list[int]:
    """The processes `sleep SECONDS` that live: one that waits for init to take note of its end does not."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(folder.name))
        except OSError:  # it ends at this moment
            continue
    return found


def groups() -> list[Path]:
    return [each for hierarchy in cgroups.hierarchies() for each in hierarchy.glob("gpuheap-node-*")]


def groups_of(process: subprocess.Popen[str]) -> list[Path]:
    return [each for each in groups() if each.name.startswith(f"gpuheap-node-{process.pid}-")]


SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def settings() -> list[str]:
    return [(Path("/proc/sys") / name).read_text() for name in SETTINGS]


@pytest.mark.node
def test_what_a_killed_program_leaves_of_its_node_is_ended_by_the_next_one(
    start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    before = settings()
    killed = start("30001")
    wait_for("the container's process", lambda: len(sleepers("30001")) == 1)
    assert (traces(tmp_path), settings()) == ([], before), "not even while it runs"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert groups_of(killed), "the container outlives the program; what it is in is found by its name"
    cgroups.sweep()
    assert sleepers("30001") == []
    assert groups_of(killed) == []
    assert (traces(tmp_path), settings()) == ([], before)


@pytest.mark.node
def test_groups_of_a_living_program_are_left_alone() -> None:
    group = cgroups.ControlGroup()
    group.create()
    with subprocess.Popen(["sleep", "30003"]) as process:
        group.add(process.pid)
        cgroups.sweep()
        assert sleepers("30003") == [process.pid]
        group.end()
    assert process.returncode == -signal.SIGKILL
    assert not [each for each in groups() if each.name == group.name]
