# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes nodes of an AKS pool, as AKS labels and taints them. Values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lightkube.models.core_v1 import NodeSpec, NodeStatus, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from localcloud.azure.knowledge import token_hex
from localcloud.azure.vm_sizes import SLICES, slice_name, vm_size
from localcloud.kube.gpus import Gpus

POOL_LABEL: Final = "kubernetes.azure.com/agentpool"
POOL_ID_ANNOTATION: Final = "localcloud.gpuheap/pool"
"""By it the nodes of a pool are found again; names can repeat from cluster to cluster."""

SPOT_TAINT: Final = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
"""AKS gives it to every spot node, asked for or not."""

KUBELET_VERSION: Final = "v1.36.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of any form: `properties` are those of an AgentPool, or of one in a cluster's list."""

    id: str
    properties: Mapping[str, Any]
    node_resource_group: str
    location: str

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def count(self) -> int:
        """How many nodes it has. Nothing scales here: a pool with a range has its minimum."""
        if self.properties.get("enableAutoScaling"):
            return int(self.properties.get("minCount", 0))
        return int(self.properties.get("count", 1))

    def nodes(self) -> list[Node]:
        return [self._node(number) for number in range(self.count)]

    def _node(self, number: int) -> Node:
        name = f"aks-{self.name}-{int(token_hex(self.id), 16) % 10**8:08d}-vmss{number:06d}"
        size = str(self.properties.get("vmSize", ""))
        machines = f"aks-{self.name}-vmss"
        provider_id = (
            f"azure:///subscriptions/{self.id.split('/')[2]}/resourceGroups/{self.node_resource_group.lower()}"
            f"/providers/Microsoft.Compute/virtualMachineScaleSets/{machines}/virtualMachines/{number}"
        )
        resources = self._resources(size)
        gpus = self._gpus(size)
        annotations = {POOL_ID_ANNOTATION: self.id, **(gpus.annotation() if gpus else {})}
        status = NodeStatus(capacity=resources, allocatable=resources)
        return Node(
            metadata=ObjectMeta(name=name, labels=self._labels(name, size), annotations=annotations),
            spec=NodeSpec(providerID=provider_id, taints=self._taints()),
            status=status,
        )

    def _labels(self, name: str, size: str) -> dict[str, str]:
        zones = self.properties.get("availabilityZones") or ["0"]
        mode = str(self.properties.get("mode", "User")).lower()
        labels = {
            "agentpool": self.name,
            POOL_LABEL: self.name,
            "kubernetes.azure.com/mode": mode,
            "kubernetes.azure.com/cluster": self.node_resource_group,
            "kubernetes.azure.com/os-sku": str(self.properties.get("osSKU", "Ubuntu")),
            "kubernetes.azure.com/role": "agent",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": str(self.properties.get("osType", "Linux")).lower(),
            "node.kubernetes.io/instance-type": size,
            "topology.kubernetes.io/region": self.location,
            "topology.kubernetes.io/zone": f"{self.location}-{zones[0]}" if zones[0] != "0" else "0",
        }
        if vendor := vm_size(size).gpu_vendor:
            labels["kubernetes.azure.com/accelerator"] = vendor
        if self._spot:
            labels["kubernetes.azure.com/scalesetpriority"] = "spot"
        return {**labels, **self.properties.get("nodeLabels", {})}

    def _taints(self) -> list[Taint]:
        texts = list(self.properties.get("nodeTaints") or ())
        if self._spot and SPOT_TAINT not in texts:
            texts.append(SPOT_TAINT)
        return [_taint(text) for text in texts]

    def _resources(self, size: str) -> dict[str, str]:
        has = vm_size(size)
        return {
            "cpu": str(has.processors),
            "memory": f"{has.memory_gib}Gi",
            "ephemeral-storage": "120Gi",
            "pods": str(self.properties.get("maxPods", 110)),
        }

    def _gpus(self, size: str) -> Gpus | None:
        """A device plugin makes them the node's resources: `kube/gpus.py`."""
        has = vm_size(size)
        if not has.gpu_vendor:
            return None
        profile = str(self.properties.get("gpuInstanceProfile"))
        cut = slice_name(size, profile)
        return Gpus(
            vendor=has.gpu_vendor, count=has.gpus, slices=SLICES[profile] if cut else 0, slice=cut or ""
        )

    @property
    def _spot(self) -> bool:
        return self.properties.get("scaleSetPriority") == "Spot"


def _taint(text: str) -> Taint:
    """From AKS's `key=value:Effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value or None, effect=effect)
