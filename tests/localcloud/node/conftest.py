# SPDX-License-Identifier: Apache-2.0
"""One real node for all tests of this folder, and simulated ones beside it: each test makes objects of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lightkube import Client
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Pod, ServiceAccount

from components.device_plugins import AMD_IMAGE, NVIDIA_IMAGE
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.kubelet import Kubelet
from localcloud.kube.watching import client
from localcloud.node import cgroups
from localcloud.node.devices import plugin_image
from localcloud.node.images import Image
from localcloud.node.node import RealNode
from localcloud.toolchain import node_packages, resolve
from tests.waiting import wait_for

Answer = TypeVar("Answer")
NAME = "real"
LABELS = {"agentpool": "gpu", "kubernetes.azure.com/agentpool": "gpu"}
PLUGINS = (NVIDIA_IMAGE, AMD_IMAGE.partition("@")[0])
TOOLS = "localhost/gpuheap/tools:1"
"""An image with a shell."""

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCluster:
    """A cluster with one real node."""

    node: RealNode
    control_plane: ControlPlane
    kubernetes: Client

    def namespace(self, labels: dict[str, str] | None = None) -> str:
        """The name of a new namespace in which pods can be made."""
        name = f"test-{next(_numbers)}"
        self.kubernetes.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
        self.wait_for_default_account(name)
        return name

    def wait_for_default_account(self, namespace: str) -> None:
        wait_for("ServiceAccount", lambda: list(self.kubernetes.list(ServiceAccount, namespace=namespace)))

    def pod(
        self,
        namespace: str,
        name: str,
        *command: str,
        labels: dict[str, str] | None = None,
        container: dict[str, Any] | None = None,
        **spec: Any,
    ) -> Pod:
        """A new pod with one container, which runs `command`; on the real node unless `spec` has a selector."""
        spec = {"nodeSelector": {"kubernetes.io/hostname": NAME}, "terminationGracePeriodSeconds": 0, **spec}
        main = Container(name="main", image=TOOLS, command=list(command) or None, **(container or {}))
        return self.kubernetes.create(
            Pod(
                metadata=ObjectMeta(name=name, namespace=namespace, labels=labels),
                spec=PodSpec(containers=[main], **spec),
            )
        )

    def wait_for_phase(self, pod: Pod, *phases: str) -> Pod:
        """The pod when it has one of the phases; what its containers wait for is in the message."""
        assert pod.metadata
        assert pod.metadata.name
        name, namespace = pod.metadata.name, pod.metadata.namespace
        seen: list[Any] = []

        def look() -> Pod | None:
            now = self.kubernetes.get(Pod, name, namespace=namespace)
            seen[:] = [now.status]
            return now if now.status and now.status.phase in phases else None

        try:
            return wait_for(f"{name} {' or '.join(phases)}", look)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from error

    def log(self, pod: Pod) -> str:
        assert pod.metadata
        assert pod.metadata.name
        return "\n".join(self.kubernetes.log(pod.metadata.name, namespace=pod.metadata.namespace))


def traces(state: Path) -> list[str]:
    """Mounts and links of a node that this machine sees: none, also while it runs."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = [line for line in mounts if line.startswith("node-") or str(state) in line]
    return found + [name for name in ("node0", "cni0") if (Path("/sys/class/net") / name).exists()]


@pytest.fixture(scope="session")
def node_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    state = tmp_path_factory.mktemp("node")
    kube = resolve().control_plane
    node = RealNode(state, kube=kube, packages=node_packages.folder(), name=NAME, labels=LABELS)
    control_plane = ControlPlane(kube, state, network=node.open(), users=node.users)
    try:
        control_plane.start()
        # All in one archive, where images share what they have in common.
        plugins = [plugin_image(kube, name) for name in PLUGINS]
        node.start(control_plane, [Image(name=TOOLS, entrypoint=["/bin/sh"]), *plugins])
        kubelet = Kubelet(client(control_plane.kubeconfig), real=[NAME])
        kubelet.start()
        assert traces(state) == []
        yield NodeCluster(node=node, control_plane=control_plane, kubernetes=client(control_plane.kubeconfig))
        kubelet.stop()
    finally:
        node.stop()
        control_plane.stop()
    left = [
        each
        for hierarchy in cgroups.hierarchies()
        for each in hierarchy.glob(f"gpuheap-node-{os.getpid()}-*")
    ]
    assert left == [], "a stopped node has no control groups, and so no processes"
    assert sorted(each.name for each in state.iterdir()) == ["ca.crt", "ca.key", "logs"]
    assert traces(state) == []


@pytest.hookimpl(tryfirst=True)  # before markers are turned into skips
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "node_cluster" in getattr(item, "fixturenames", ()) and Path(__file__).parent in item.path.parents:
            item.add_marker("node")
