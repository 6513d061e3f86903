# SPDX-License-Identifier: Apache-2.0
"""GPUs on a real node: a device plugin in a DaemonSet offers them, the kubelet hands them to pods."""

from collections.abc import Iterator

import pytest
from lightkube.models.apps_v1 import DaemonSetSpec
from lightkube.models.core_v1 import (
    Container,
    HostPathVolumeSource,
    PodSpec,
    PodTemplateSpec,
    Toleration,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node, Pod

from localcloud.node import devices
from localcloud.node.devices import Resource
from localcloud.toolchain import resolve
from tests.localcloud.node.conftest import NAME, NodeCluster, wait_for

SMI = """#!/bin/sh
echo "stand-in driver 550.54.15, devices ${NVIDIA_VISIBLE_DEVICES:-$AMD_VISIBLE_DEVICES}"
"""


def image(vendor: str) -> str:
    return f"localhost/gpuheap/device-plugin-{vendor.removesuffix('.com')}:1"


def daemon_set(name: str, vendor: str) -> DaemonSet:
    folder = "/var/lib/kubelet/device-plugins"
    labels = {"app": name}
    spec = PodSpec(
        containers=[
            Container(
                name="plugin",
                image=image(vendor),
                volumeMounts=[VolumeMount(name="plugins", mountPath=folder)],
            )
        ],
        nodeSelector={"kubernetes.io/hostname": NAME},
        terminationGracePeriodSeconds=0,
        tolerations=[Toleration(operator="Exists")],
        volumes=[Volume(name="plugins", hostPath=HostPathVolumeSource(path=folder))],
    )
    return DaemonSet(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        spec=DaemonSetSpec(
            selector=LabelSelector(matchLabels=labels),
            template=PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=spec),
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def plugins(node_cluster: NodeCluster) -> Iterator[None]:
    kube = resolve().control_plane
    vendors = ("nvidia.com", "amd.com")
    node_cluster.node.add_images([devices.plugin_image(kube, image(vendor)) for vendor in vendors])
    sets = [daemon_set(f"plugin-{vendor.removesuffix('.com')}", vendor) for vendor in vendors]
    for each in sets:
        node_cluster.kubernetes.create(each)
    yield
    for vendor in vendors:
        node_cluster.kubernetes.delete(
            DaemonSet, f"plugin-{vendor.removesuffix('.com')}", namespace="kube-system"
        )
    node_cluster.node.set_devices(None)


def allocatable(node_cluster: NodeCluster, resource: str) -> str | None:
    status = node_cluster.kubernetes.get(Node, NAME).status
    return ((status and status.allocatable) or {}).get(resource)


def gpu_pod(node_cluster: NodeCluster, name: str, resource: str, count: int, *command: str) -> Pod:
    resources = {"limits": {resource: str(count)}}
    return node_cluster.pod(
        node_cluster.namespace(), name, *command, container={"resources": resources}, restartPolicy="Never"
    )


def why_pending(node_cluster: NodeCluster, pod: Pod) -> str:
    assert pod.metadata
    assert pod.metadata.name
    status = node_cluster.kubernetes.get(Pod, pod.metadata.name, namespace=pod.metadata.namespace).status
    conditions = (status and status.conditions) or []
    return next((each.message or "" for each in conditions if each.type == "PodScheduled"), "")


@pytest.mark.parametrize(
    ("resource", "program"),
    [("nvidia.com/gpu", "nvidia-smi"), ("amd.com/gpu", "amd-smi"), ("nvidia.com/mig-1g.10gb", "nvidia-smi")],
)
def test_a_pod_that_asks_for_a_gpu_is_given_one_with_the_drivers_program(
    node_cluster: NodeCluster, resource: str, program: str
) -> None:
    offered = Resource(devices={"GPU-0": "Healthy", "GPU-1": "Healthy"}, mounts={f"/usr/bin/{program}": SMI})
    node_cluster.node.set_devices({resource: offered})
    wait_for("two GPUs", lambda: allocatable(node_cluster, resource) == "2")
    pod = gpu_pod(node_cluster, "asks", resource, 2, program)
    node_cluster.wait_for_phase(pod, "Succeeded")
    said = node_cluster.log(pod).strip()
    assert said.startswith("stand-in driver 550.54.15, devices ")
    assert sorted(said.rpartition(" ")[2].split(",")) == ["GPU-0", "GPU-1"]


def test_a_pod_that_asks_for_none_sees_neither_gpu_nor_driver(node_cluster: NodeCluster) -> None:
    node_cluster.node.set_devices(
        {"nvidia.com/gpu": Resource(devices={"GPU-0": "Healthy"}, mounts={"/usr/bin/nvidia-smi": SMI})}
    )
    pod = node_cluster.pod(
        node_cluster.namespace(),
        "asks-not",
        "sh",
        "-c",
        "nvidia-smi || echo devices: $NVIDIA_VISIBLE_DEVICES",
        restartPolicy="Never",
    )
    node_cluster.wait_for_phase(pod, "Succeeded")
    # Its two outputs are copied one beside the other, and may come after its end.
    wait_for("both outputs", lambda: {"not found", "devices:\n"} <= words_of(node_cluster.log(pod)))


def words_of(log: str) -> set[str]:
    return {word for word in ("not found", "devices:\n") if word in log}


def test_an_unhealthy_device_is_not_offered_and_comes_back(node_cluster: NodeCluster) -> None:
    node_cluster.node.set_devices(
        {"nvidia.com/gpu": Resource(devices={"GPU-0": "Healthy", "GPU-1": "Unhealthy"})}
    )
    wait_for("one healthy GPU", lambda: allocatable(node_cluster, "nvidia.com/gpu") == "1")
    pod = gpu_pod(node_cluster, "wants-both", "nvidia.com/gpu", 2, "true")
    wait_for("refusal", lambda: "Insufficient nvidia.com/gpu" in why_pending(node_cluster, pod))
    node_cluster.node.set_devices(
        {"nvidia.com/gpu": Resource(devices={"GPU-0": "Healthy", "GPU-1": "Healthy"})}
    )
    node_cluster.wait_for_phase(pod, "Succeeded")


def test_a_node_whose_driver_is_gone_offers_no_gpu(node_cluster: NodeCluster) -> None:
    node_cluster.node.set_devices({"nvidia.com/gpu": Resource(devices={"GPU-0": "Healthy"})})
    wait_for("one GPU", lambda: allocatable(node_cluster, "nvidia.com/gpu") == "1")
    node_cluster.node.set_devices(None)
    wait_for("none", lambda: allocatable(node_cluster, "nvidia.com/gpu") in (None, "0"))
    pod = gpu_pod(node_cluster, "wants-one", "nvidia.com/gpu", 1, "true")
    wait_for("refusal", lambda: "Insufficient nvidia.com/gpu" in why_pending(node_cluster, pod))
