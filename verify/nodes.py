# SPDX-License-Identifier: Apache-2.0
"""Checks of the GPU nodes: taint, device plugin, driver and allocatable GPUs, pool by pool and for both vendors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lightkube.resources.core_v1 import Node, Pod

from components.gpu_vendors import AMD, NVIDIA

from .model import CheckFailed, Live, NothingToCheck

POOL_LABELS: Final = ("kubernetes.azure.com/agentpool", "agentpool", "karpenter.sh/nodepool")
"""By which a node names its pool: those of AKS, and that of node auto-provisioning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """How nodes with GPUs of one vendor are known, and how their driver is asked."""

    name: str
    taint: str
    resources: tuple[str, ...]
    """Prefixes of what a node offers: whole devices, and slices of them."""
    plugins: frozenset[str]
    """What device plugins call themselves, in the label `name`, `app` or `app.kubernetes.io/name`."""
    driver_command: tuple[str, ...]


VENDORS: Final = (
    Vendor(
        name="NVIDIA",
        taint="nvidia.com/gpu",
        resources=NVIDIA.prefixes,
        # https://github.com/NVIDIA/k8s-device-plugin: the manifest's name, and the chart's; then this stack's.
        plugins=frozenset(
            {
                "nvidia-device-plugin-ds",
                "nvidia-device-plugin",
                "nvidia-device-plugin-daemonset",
                "nvidia-device-plugin-single",
                "nvidia-device-plugin-mixed",
            }
        ),
        driver_command=("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    ),
    Vendor(
        name="AMD",
        taint="amd.com/gpu",
        resources=AMD.prefixes,
        # https://github.com/ROCm/k8s-device-plugin; then this stack's.
        plugins=frozenset(
            {
                "amdgpu-dp-ds",
                "amd-gpu-device-plugin",
                "amdgpu-device-plugin",
                "amd-device-plugin",
                "amd-device-plugin-single",
                "amd-device-plugin-mixed",
            }
        ),
        driver_command=("amd-smi", "version"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    name: str
    pool: str
    vendor: Vendor
    allocatable: Mapping[str, int]


def gpu_nodes(live: Live) -> list[GpuNode]:
    """The nodes with a GPU taint. Raises CheckFailed when there is none."""
    found = [gpu for node in live.kubernetes.list(Node) for gpu in _gpu_node(node)]
    if not found:
        taints = " or ".join(f"{vendor.taint}:NoSchedule" for vendor in VENDORS)
        raise CheckFailed(f"no node has the taint {taints}")
    return found


def _gpu_node(node: Node) -> Iterator[GpuNode]:
    taints = {taint.key for taint in (node.spec and node.spec.taints) or () if taint.effect == "NoSchedule"}
    labels = (node.metadata and node.metadata.labels) or {}
    offered = (node.status and node.status.allocatable) or {}
    for vendor in VENDORS:
        if vendor.taint in taints:
            yield GpuNode(
                name=(node.metadata and node.metadata.name) or "",
                pool=next((labels[label] for label in POOL_LABELS if label in labels), "(no pool)"),
                vendor=vendor,
                allocatable={
                    name: int(count) for name, count in offered.items() if name.startswith(vendor.resources)
                },
            )


def offer_their_gpus(live: Live) -> str:
    pools: dict[str, int] = {}
    for node in gpu_nodes(live):
        count = sum(node.allocatable.values())
        if count < 1:
            raise CheckFailed(
                f"node {node.name} of pool {node.pool} has no allocatable {node.vendor.resources[0]}"
            )
        pools[node.pool] = pools.get(node.pool, 0) + count
    return "allocatable GPUs: " + ", ".join(f"{count} in {pool}" for pool, count in sorted(pools.items()))


def have_their_device_plugin(live: Live) -> str:
    nodes, plugins = gpu_nodes(live), _plugins(live)
    for node in nodes:
        pod = plugins.get((node.name, node.vendor.name))
        if pod is None:
            raise CheckFailed(
                f"no device plugin of {node.vendor.name} runs on node {node.name} of pool {node.pool}"
            )
        if not is_ready(pod):
            raise CheckFailed(
                f"pod {_name(pod)} on node {node.name} is not ready: {pod.status and pod.status.phase}"
            )
    return f"ready on {len(nodes)} node(s)"


def have_a_driver(live: Live) -> str:
    """Asks the driver of one node of each pool, where the device plugin sees it."""
    plugins, answers = _plugins(live), {}
    for node in gpu_nodes(live):
        if node.pool in answers:
            continue
        pod = plugins.get((node.name, node.vendor.name))
        if pod is None:
            raise CheckFailed(f"no device plugin on node {node.name} of pool {node.pool} to ask")
        assert pod.metadata
        assert pod.spec
        printed = live.pods.run(
            pod.metadata.namespace or "", _name(pod), pod.spec.containers[0].name, node.vendor.driver_command
        )
        answers[node.pool] = next((line.strip() for line in printed.splitlines() if line.strip()), "")
        if not answers[node.pool]:
            raise CheckFailed(f"{node.vendor.driver_command[0]} printed nothing on node {node.name}")
    return ", ".join(f"{pool}: {answer[:60]}" for pool, answer in sorted(answers.items()))


def _plugins(live: Live) -> dict[tuple[str, str], Pod]:
    """The device plugins' pods, by node and vendor. Raises NothingToCheck when there are none and need be none."""
    found = {}
    for pod in live.kubernetes.list(Pod, namespace="*"):
        labels = (pod.metadata and pod.metadata.labels) or {}
        names = {labels.get(key) for key in ("name", "app", "app.kubernetes.io/name")}
        for vendor in VENDORS:
            if names & vendor.plugins and pod.spec and pod.spec.nodeName:
                found[pod.spec.nodeName, vendor.name] = pod
    if not found and all(sum(node.allocatable.values()) for node in gpu_nodes(live)):
        # Nodes that AKS manages have the plugin as a service of their own: it is no pod.
        raise NothingToCheck("the nodes offer their GPUs without a device plugin in a pod")
    return found


def is_ready(pod: Pod) -> bool:
    conditions = (pod.status and pod.status.conditions) or ()
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def _name(pod: Pod) -> str:
    return (pod.metadata and pod.metadata.name) or ""
