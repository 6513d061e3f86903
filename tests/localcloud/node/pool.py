# SPDX-License-Identifier: Apache-2.0
"""The real node as the one node of a pool of GPUs, with the stack's device plugin on it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pulumi_kubernetes as kubernetes
from lightkube import codecs
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node

from components.device_plugins import (
    AMD_IMAGE,
    NVIDIA_IMAGE,
    DevicePlugin,
    DevicePlugins,
    DevicePluginsArgs,
    Nodes,
    Strategy,
)
from components.gpu_vendors import AMD, NVIDIA, GpuVendor
from localcloud.kube.gpus import Gpus
from localcloud.node.devices import Hardware
from tests.components.recorder import record
from tests.localcloud.node.conftest import NAME, NodeCluster
from tests.waiting import wait_for

NODES: Final = Nodes(label="agentpool", values=("gpu",))
IMAGES: Final = {NVIDIA: NVIDIA_IMAGE, AMD: AMD_IMAGE.partition("@")[0]}
PROGRAMS: Final = {NVIDIA: "/usr/bin/nvidia-smi", AMD: "/usr/bin/amd-smi"}

# What the real programs print for the options that the checks use, AMD's in the form of ROCm 7.
GOOD: Final = {
    NVIDIA: "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, NVIDIA A100 80GB PCIe, 550.144.03",
    AMD: "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.12.12",
}


def gpus(vendor: GpuVendor, prints: str | None, *, unhealthy: tuple[str, ...] = (), **cut: Any) -> Hardware:
    """One GPU whose vendor's program prints that; None: the driver's programs are not brought into containers."""
    programs = {} if prints is None else {PROGRAMS[vendor]: f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n"}
    whole = Gpus(vendor=vendor.name, count=1, **cut)
    return Hardware(gpus=whole, programs=programs, unhealthy=unhealthy)


def declared(
    component: Callable[[kubernetes.Provider], object], token: str, kind: str
) -> list[dict[str, Any]]:
    """The manifests of one kind that a component declares; `token` is their type's."""
    recording = record(lambda: component(kubernetes.Provider("cluster")))
    api_version = token.removeprefix("kubernetes:").rpartition(":")[0]
    made = [{"apiVersion": api_version, "kind": kind, **each.inputs} for each in recording.of_type(token)]
    # The SDK hands over every number as a float; the engine writes whole ones as such.
    whole: list[dict[str, Any]] = json.loads(re.sub(r"(?<=: )(\d+)\.0\b", r"\1", json.dumps(made)))
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    cluster: NodeCluster
    vendor: GpuVendor
    strategy: Strategy

    def becomes(self, hardware: Hardware | None) -> None:
        """Give the node these GPUs, and wait until those that are healthy can be asked for, and no others."""
        self.cluster.node.set_gpus(hardware)
        wanted = {
            name: sum(health == "Healthy" for health in devices.values())
            for name, devices in (hardware.devices(self.strategy) if hardware else {}).items()
        }
        wait_for(
            f"{wanted} and nothing else", lambda: self.offers() == {k: n for k, n in wanted.items() if n}
        )

    def offers(self) -> dict[str, int]:
        """What of the vendor's can be asked for."""
        status = self.cluster.kubernetes.get(Node, NAME).status
        offered = ((status and status.allocatable) or {}).items()
        return {name: int(count) for name, count in offered if self.vendor.owns(name) and int(count)}


@contextmanager
def plugged(cluster: NodeCluster, vendor: GpuVendor, strategy: Strategy) -> Iterator[Pool]:
    """The pool with its vendor's taint, until the end."""
    plugin = DevicePlugin(
        vendor=vendor, strategy=strategy, image=IMAGES[vendor], nodes=NODES, taints=(vendor.taint,)
    )
    (manifest,) = declared(
        lambda provider: DevicePlugins(
            "devices", DevicePluginsArgs(plugins=[plugin], provider=provider, depends_on=[])
        ),
        "kubernetes:apps/v1:DaemonSet",
        "DaemonSet",
    )
    manifest["metadata"]["namespace"] = namespace = cluster.namespace()
    cluster.kubernetes.create(codecs.from_dict(manifest))
    try:
        with tainted(cluster, vendor):
            yield Pool(cluster=cluster, vendor=vendor, strategy=strategy)
    finally:
        cluster.kubernetes.delete(DaemonSet, manifest["metadata"]["name"], namespace=namespace)


@contextmanager
def tainted(cluster: NodeCluster, vendor: GpuVendor) -> Iterator[None]:
    """The node with the vendor's taint, and in the end without it and without GPUs."""
    taint = {"key": vendor.taint.key, "value": vendor.taint.value, "effect": vendor.taint.effect}
    cluster.kubernetes.patch(Node, NAME, {"spec": {"taints": [taint]}})
    try:
        yield
    finally:
        cluster.kubernetes.patch(Node, NAME, {"spec": {"taints": None}})
        cluster.node.set_gpus(None)
