# SPDX-License-Identifier: Apache-2.0
"""One control plane for all tests of the local cloud that need no Azure: each makes objects of its own."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lightkube import ApiError, Client
from lightkube.models.apps_v1 import DaemonSetSpec
from lightkube.models.core_v1 import (
    Container,
    EnvVar,
    HostPathVolumeSource,
    NodeSpec,
    PodSpec,
    PodTemplateSpec,
    Taint,
    Toleration,
    Volume,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Namespace, Node, ServiceAccount

from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.gpus import SOCKETS, Gpus
from localcloud.kube.kubelet import Kubelet
from localcloud.kube.watching import client
from localcloud.toolchain import resolve
from tests.waiting import wait_for

Answer = TypeVar("Answer")
_numbers = count(1)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    control_plane = ControlPlane(resolve().control_plane, tmp_path_factory.mktemp("cluster"))
    control_plane.start()
    yield control_plane
    control_plane.stop()


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Iterator[Client]:
    """A client of a cluster whose Nodes have kubelets."""
    kubernetes = client(control_plane.kubeconfig)
    kubelet = Kubelet(client(control_plane.kubeconfig))
    kubelet.start()
    yield kubernetes
    kubelet.stop()


@pytest.fixture
def waiting() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def namespace(cluster: Client) -> str:
    """The name of a new namespace in which pods can be made."""
    name = f"test-{next(_numbers)}"
    cluster.create(Namespace(metadata=ObjectMeta(name=name)))
    wait_for(
        "default ServiceAccount",
        lambda: list(cluster.list(ServiceAccount, namespace=name)),
    )
    return name


@pytest.fixture
def device_plugin(cluster: Client, namespace: str) -> Iterator[Callable[..., None]]:
    """Puts NVIDIA's device plugin on the nodes with a label, which is gone at the end."""
    names: list[str] = []

    def start(value: str, *, label: str = "agentpool", strategy: str = "none") -> None:
        names.append(f"plugin-{next(_numbers)}")
        labels = {"app": names[-1]}
        container = Container(
            name="plugin",
            image="nvcr.io/nvidia/k8s-device-plugin:v0.18.0",
            env=[EnvVar(name="MIG_STRATEGY", value=strategy)],
        )
        spec = PodSpec(
            containers=[container],
            nodeSelector={label: value},
            tolerations=[Toleration(operator="Exists")],
            volumes=[Volume(name="sockets", hostPath=HostPathVolumeSource(path=SOCKETS))],
        )
        template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=spec)
        cluster.create(
            DaemonSet(
                metadata=ObjectMeta(name=names[-1], namespace=namespace),
                spec=DaemonSetSpec(selector=LabelSelector(matchLabels=labels), template=template),
            )
        )

    yield start
    for name in names:
        with suppress(ApiError):  # the test has done so
            cluster.delete(DaemonSet, name, namespace=namespace)


@pytest.fixture
def add_node(cluster: Client) -> Iterator[Callable[..., str]]:
    """Makes Nodes that go with the test."""
    names: list[str] = []

    def add(
        *,
        labels: dict[str, str],
        gpus: int = 0,
        taints: list[Taint] | None = None,
        hidden: Gpus | None = None,
    ) -> str:
        """`gpus` can be asked for at once, `hidden` ones when a device plugin runs."""
        name = f"node-{next(_numbers)}"
        names.append(name)
        annotations = hidden.annotation() if hidden else None
        metadata = ObjectMeta(name=name, labels=labels, annotations=annotations)
        cluster.create(Node(metadata=metadata, spec=NodeSpec(taints=taints)))
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        if gpus:
            capacity["nvidia.com/gpu"] = str(gpus)
        cluster.patch(Node.Status, name, {"status": {"capacity": capacity, "allocatable": capacity}})
        return name

    yield add
    for name in names:
        cluster.delete(Node, name)


@pytest.hookimpl(tryfirst=True)  # before markers are turned into skips
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"cluster", "control_plane"} & set(getattr(item, "fixturenames", ())) and Path(
            __file__
        ).parent in item.path.parents:
            item.add_marker("cluster")
