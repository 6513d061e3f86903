# SPDX-License-Identifier: Apache-2.0
"""Plays Karpenter, as AKS Automatic runs it: makes a node of a NodePool's size when a pod waits that fits one.

A pod fits if it tolerates the pool's taints, asks for labels that the nodes have, and for extended resources that the
size has. The pool's limits hold. Nodes go with their NodePool; an empty one is not taken away before, and what the
AKSNodeClass says (image, disk, subnet) has nothing to act on here.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from lightkube import ApiError, Client
from lightkube.models.core_v1 import Taint, Toleration
from lightkube.models.meta_v1 import OwnerReference
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from localcloud.azure.aks_automatic import provisions_nodes
from localcloud.azure.nodes import Pool
from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.azure.types_cluster import CLUSTER
from localcloud.kube.gpus import Gpus
from localcloud.kube.karpenter_crds import NODE_POOL
from localcloud.kube.watching import WATCH_SECONDS, Follower

POOL_LABEL: Final = "karpenter.sh/nodepool"
CAPACITY_LABEL: Final = "karpenter.sh/capacity-type"
SIZE_LABEL: Final = "node.kubernetes.io/instance-type"
NOT_YET: Final = "node.kubernetes.io/"
"""Taints of a node that is not ready yet, for one: it will be."""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"


class Karpenter:
    """The node auto-provisioning of the cluster that `store` holds, from `start` until `stop`."""

    def __init__(self, kubernetes: Client, store: Store) -> None:
        self._kubernetes = kubernetes
        self._store = store
        self._follower: Follower[Pod] | None = None

    def start(self) -> None:
        pods = partial(self._kubernetes.watch, Pod, namespace="*", server_timeout=WATCH_SECONDS)
        self._follower = Follower("pods without a node", pods, self._pod)

    def stop(self) -> None:
        if self._follower:
            self._follower.stop()

    def _pod(self, seen: Pod) -> None:
        pod = self._as_it_is_now(seen) if _waits(seen) else None
        if pod is None or not _waits(pod):
            return
        for cluster in filter(provisions_nodes, self._store.resources(token=CLUSTER)):
            for node_pool in self._kubernetes.list(NODE_POOL):
                if self._provide(pod, node_pool, cluster):
                    return

    def _as_it_is_now(self, pod: Pod) -> Pod | None:
        """The scheduler may have found a node since: the one that was made when the pod was seen before."""
        assert pod.metadata
        try:
            return self._kubernetes.get(Pod, str(pod.metadata.name), namespace=str(pod.metadata.namespace))
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None

    def _provide(self, pod: Pod, node_pool: Any, cluster: Resource) -> bool:
        """Make a node for the pod, if one of this pool fits and there may be one more."""
        there = list(self._kubernetes.list(Node, labels={POOL_LABEL: node_pool.metadata.name}))
        if any(_fits(pod, node) and not self._full(pod, node) for node in there):
            return True  # the scheduler is about to use it
        node = _nodes(node_pool, cluster, len(there) + 1)[-1]
        assert node.metadata
        assert node.status
        if not _fits(pod, node) or not _within(node_pool.spec.get("limits", {}), [*there, node]):
            return False
        # What the garbage collector does with a NodePool's nodes, Karpenter's finalizers do.
        node.metadata.ownerReferences = [
            OwnerReference(
                apiVersion="karpenter.sh/v1",
                kind="NodePool",
                name=node_pool.metadata.name,
                uid=node_pool.metadata.uid,
            )
        ]
        resources = {"capacity": node.status.capacity, "allocatable": node.status.allocatable}
        self._kubernetes.create(node)
        assert node.metadata.name
        self._kubernetes.patch(
            Node.Status, node.metadata.name, {"status": resources}, patch_type=PatchType.MERGE
        )
        return True

    def _full(self, pod: Pod, node: Node) -> bool:
        """Whether other pods on the node leave too little of what this one asks for. It may be there already: the
        scheduler does not wait for what is looked up here.
        """
        assert node.metadata
        assert node.status
        on_it = self._kubernetes.list(Pod, namespace="*", fields={"spec.nodeName": str(node.metadata.name)})
        used: dict[str, int] = {}
        for other in on_it:
            if _uid(other) == _uid(pod):
                continue
            for name, count in _asked(other).items():
                used[name] = used.get(name, 0) + count
        has = _will_offer(node)
        return any(used.get(name, 0) + count > int(has.get(name, "0")) for name, count in _asked(pod).items())


def _uid(pod: Pod) -> str:
    return str(pod.metadata and pod.metadata.uid)


def _waits(pod: Pod) -> bool:
    """Whether the scheduler found no node; daemons' pods bring no nodes."""
    if pod.spec and pod.spec.nodeName:
        return False
    owners = (pod.metadata and pod.metadata.ownerReferences) or ()
    if any(owner.kind == "DaemonSet" for owner in owners) or (
        pod.metadata and pod.metadata.deletionTimestamp
    ):
        return False
    conditions = (pod.status and pod.status.conditions) or ()
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in conditions
    )


def _nodes(node_pool: Any, cluster: Resource, count: int) -> list[Node]:
    """The first `count` nodes of a pool."""
    template = node_pool.spec["template"]
    wanted = {
        each["key"]: each.get("values", [])
        for each in template["spec"]["requirements"]
        if each["operator"] == "In"
    }
    zones = [zone.rpartition("-")[2] for zone in wanted.get(ZONE_LABEL, ())]
    name = node_pool.metadata.name
    spot = wanted.get(CAPACITY_LABEL) == ["spot"]
    properties = {
        "vmSize": wanted.get(SIZE_LABEL, ["Standard_D4s_v5"])[0],
        "count": count,
        "availabilityZones": zones or None,
        "scaleSetPriority": "Spot" if spot else None,
        "nodeTaints": [
            f"{each['key']}={each.get('value', '')}:{each['effect']}"
            for each in template["spec"].get("taints", ())
        ],
        "nodeLabels": {
            **template.get("metadata", {}).get("labels", {}),
            POOL_LABEL: name,
            CAPACITY_LABEL: "spot" if spot else "on-demand",
        },
    }
    return Pool(
        id=f"{cluster.id}/agentPools/{name}",
        properties=properties,
        node_resource_group=cluster.outputs["nodeResourceGroup"],
        location=cluster.outputs["location"],
    ).nodes()


def _fits(pod: Pod, node: Node) -> bool:
    assert pod.spec
    assert node.metadata
    assert node.spec
    assert node.status
    labels = node.metadata.labels or {}
    has = _will_offer(node)
    return (
        all(labels.get(key) == value for key, value in (pod.spec.nodeSelector or {}).items())
        and all(_tolerated(taint, pod.spec.tolerations or []) for taint in node.spec.taints or ())
        and all(count <= int(has.get(name, "0")) for name, count in _asked(pod).items())
    )


def _will_offer(node: Node) -> Mapping[str, str]:
    """What the node has, and what it will have when a device plugin runs there. Karpenter knows it from the size."""
    gpus = Gpus.of(node)
    return {
        **(gpus.resources("none") if gpus else {}),
        **((node.status and node.status.allocatable) or {}),
    }


def _tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    if taint.effect == "PreferNoSchedule" or taint.key.startswith(NOT_YET):
        return True
    return any(
        each.effect in (None, taint.effect)
        and (
            (each.operator == "Exists" and each.key in (None, taint.key))
            or (each.operator != "Exists" and (each.key, each.value or "") == (taint.key, taint.value or ""))
        )
        for each in tolerations
    )


def _asked(pod: Pod) -> Mapping[str, int]:
    """The extended resources that a pod asks for: those in whose name a vendor stands."""
    asked: dict[str, int] = {}
    for container in (pod.spec and pod.spec.containers) or ():
        for name, count in ((container.resources and container.resources.limits) or {}).items():
            if "/" in name:
                asked[name] = asked.get(name, 0) + int(count)
    return asked


def _within(limits: Mapping[str, Any], nodes: list[Node]) -> bool:
    """Whether these nodes have no more than the pool may have, of what is counted in whole numbers."""
    return all(
        sum(int(_will_offer(node).get(name, "0")) for node in nodes) <= int(limit)
        for name, limit in limits.items()
        if "/" in name
    )
