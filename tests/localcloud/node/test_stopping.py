# SPDX-License-Identifier: Apache-2.0
"""What a node leaves on the machine: nothing, also when what started it was killed."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localcloud.node import cgroups

CHECKOUT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, time
from pathlib import Path
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.watching import client
from localcloud.node.images import Image
from localcloud.node.node import RealNode
from localcloud.toolchain import node_packages, resolve

state = Path(sys.argv[1])
kube = resolve().control_plane
node = RealNode(state, kube=kube, packages=node_packages.folder())
control_plane = ControlPlane(kube, state, network=node.open(), users=node.users)
try:
    control_plane.start()
    node.start(control_plane, [Image(name="localhost/tools:1")])
    kubernetes = client(control_plane.kubeconfig)
    container = Container(name="main", image="localhost/tools:1", command=["sleep", sys.argv[2]])
    pod = kubernetes.create(
        Pod(metadata=ObjectMeta(name="lives", namespace="default"), spec=PodSpec(containers=[container]))
    )
    while kubernetes.get(Pod, "lives", namespace="default").status.phase != "Running":
        time.sleep(0.1)
    print("running", flush=True)
    sys.stdin.read()
finally:
    node.stop()
    control_plane.stop()
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts a program that runs a node with one pod, which sleeps the given seconds."""

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


def links() -> set[str]:
    return {folder.name for folder in Path("/sys/class/net").iterdir()}


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def settings() -> list[str]:
    return [(Path("/proc/sys") / name).read_text() for name in SETTINGS]


@pytest.mark.node
def test_a_stopped_node_leaves_nothing_and_a_killed_one_nothing_after_the_next_start(
    start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    before = links(), mounts(), settings()
    killed = start("30001")
    assert len(sleepers("30001")) == 1
    assert (links(), mounts(), settings()) == before, "not even while it runs"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert groups_of(killed), "the pod outlives the program; what it is in is found by its name"

    stopped = start("30002")
    assert sleepers("30001") == []
    assert groups_of(killed) == []
    assert len(sleepers("30002")) == 1
    stopped.communicate()  # ends its standard input
    assert stopped.returncode == 0
    assert sleepers("30002") == []
    assert groups_of(stopped) == []
    assert (links(), mounts(), settings()) == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ca.crt", "ca.key", "logs"]
