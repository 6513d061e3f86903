# SPDX-License-Identifier: Apache-2.0
"""Plays the kubelet of every Node: pods become Running without a container, and Nodes stay Ready.

Pods that restart always run until they are deleted; all others succeed at once. A device plugin's pod adds GPUs to its
Node while it runs (`gpus.py`). Makes no Nodes. Nodes that have a kubelet of their own are left to it.
"""

import itertools
import logging
import threading
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from lightkube import ApiError, Client
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import Container
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from localcloud.kube.gpus import is_plugin, offered
from localcloud.kube.watching import WATCH_SECONDS, Follower

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
HEALTHY: Final = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
DEFAULT_HOST_ADDRESS: Final = "127.0.0.1"

_log = logging.getLogger(__name__)


class Kubelet:
    """All kubelets of a cluster, from `start` until `stop`, but those of the `real` nodes."""

    def __init__(self, kubernetes: Client, *, real: Collection[str] = ()) -> None:
        self._kubernetes = kubernetes
        self._real = frozenset(real)
        self._stopping = threading.Event()
        self._followers: tuple[Follower[Node] | Follower[Pod], ...] = ()
        self._pod_numbers = itertools.count(1)
        self._nodes: dict[str, Node] = {}
        self._nodes_lock = threading.Lock()

    def start(self) -> None:
        watch = self._kubernetes.watch
        nodes = partial(watch, Node, server_timeout=WATCH_SECONDS)
        pods = partial(watch, Pod, namespace="*", server_timeout=WATCH_SECONDS)
        self._followers = (
            Follower("nodes", nodes, self._node, gone=self._node_gone),
            Follower("pods", pods, self._pod),
        )
        threading.Thread(target=self._renew_leases, name="node leases", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        for follower in self._followers:
            follower.stop()

    # Nodes

    def _node(self, node: Node) -> None:
        name = _name(node)
        if name in self._real:
            return
        with self._nodes_lock:
            new = name not in self._nodes
            self._nodes[name] = node
        if new:
            self._renew(node)
        conditions = (node.status and node.status.conditions) or []
        if {condition.type: condition.status for condition in conditions}.get("Ready") == "True":
            return
        now = _now()
        healthy = [
            {
                "type": type_,
                "status": status,
                "reason": "KubeletReady",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type_, status in HEALTHY.items()
        ]
        self._kubernetes.patch(Node.Status, name, {"status": {"conditions": healthy}})

    def _node_gone(self, node: Node) -> None:
        with self._nodes_lock:
            self._nodes.pop(_name(node), None)
        # The pod garbage collector would wait 40 s, in case a Node of that name comes back.
        for pod in self._kubernetes.list(Pod, namespace="*", fields={"spec.nodeName": _name(node)}):
            self._remove(pod)

    def _renew_leases(self) -> None:
        while not self._stopping.wait(RENEW_SECONDS):
            try:
                # Asked anew: a lease of a Node whose deletion was missed would be made over and over.
                for node in self._kubernetes.list(Node):
                    if _name(node) not in self._real:
                        self._renew(node)
            except Exception:  # the next round tries again; the grace period of Nodes is long
                if not self._stopping.is_set():
                    _log.exception("leases were not renewed")

    def _renew(self, node: Node) -> None:
        name = _name(node)
        spec = LeaseSpec(holderIdentity=name, leaseDurationSeconds=LEASE_SECONDS, renewTime=datetime.now(UTC))
        owner = OwnerReference(apiVersion="v1", kind="Node", name=name, uid=_uid(node))
        metadata = ObjectMeta(name=name, namespace=LEASE_NAMESPACE, ownerReferences=[owner])
        lease = Lease(metadata=metadata, spec=spec)
        try:
            self._kubernetes.patch(Lease, name, lease, namespace=LEASE_NAMESPACE, patch_type=PatchType.MERGE)
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._kubernetes.create(lease)

    # Pods

    def _pod(self, pod: Pod) -> None:
        if pod.metadata is None or pod.spec is None or not pod.spec.nodeName:
            return
        if pod.spec.nodeName in self._real:
            return
        if pod.metadata.deletionTimestamp:
            self._remove(pod)
        elif pod.status is None or pod.status.phase in (None, "Pending"):
            self._offer(pod, runs=True)
            status = running_status(pod, self._address(), self._host_address(pod.spec.nodeName))
            self._kubernetes.patch(
                Pod.Status,
                _name(pod),
                {"status": status},
                namespace=_namespace(pod),
                patch_type=PatchType.MERGE,
            )

    def _remove(self, pod: Pod) -> None:
        self._offer(pod, runs=False)
        try:
            self._kubernetes.delete(Pod, _name(pod), namespace=_namespace(pod), grace_period=0)
        except ApiError as error:
            if error.status.code != 404:
                raise

    def _offer(self, pod: Pod, *, runs: bool) -> None:
        """Give the pod's Node what a device plugin's pod offers, or take it away again."""
        assert pod.spec
        if not is_plugin(pod) or not pod.spec.nodeName:
            return
        try:
            resources = offered(self._kubernetes.get(Node, pod.spec.nodeName), pod)
            now = resources if runs else dict.fromkeys(resources, "0")
            status = {"status": {"capacity": now, "allocatable": now}}
            self._kubernetes.patch(Node.Status, pod.spec.nodeName, status, patch_type=PatchType.MERGE)
        except ApiError as error:  # the node went meanwhile
            if error.status.code != 404:
                raise

    def _address(self) -> str:
        number = next(self._pod_numbers)
        return f"10.244.{number // 250 % 256}.{number % 250 + 1}"

    def _host_address(self, node_name: str) -> str:
        with self._nodes_lock:
            node = self._nodes.get(node_name)
        addresses = (node and node.status and node.status.addresses) or []
        return next((each.address for each in addresses if each.type == "InternalIP"), DEFAULT_HOST_ADDRESS)


def running_status(pod: Pod, address: str, host_address: str) -> dict[str, Any]:
    """The status of a pod whose containers run, or ran if they are not to be restarted always."""
    assert pod.spec
    ends = pod.spec.restartPolicy not in (None, "Always")
    now = _now()
    conditions = {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "Ready": not ends,
        "ContainersReady": not ends,
        "PodScheduled": True,
    }
    pod_address = host_address if pod.spec.hostNetwork else address
    return {
        "phase": "Succeeded" if ends else "Running",
        "startTime": now,
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": pod_address,
        "podIPs": [{"ip": pod_address}],
        "conditions": [
            {"type": type_, "status": str(holds), "lastTransitionTime": now}
            for type_, holds in conditions.items()
        ],
        "initContainerStatuses": [
            # An init container that restarts always is a sidecar.
            _container_status(container, ended=ends or container.restartPolicy != "Always", now=now)
            for container in pod.spec.initContainers or []
        ],
        "containerStatuses": [_container_status(each, ended=ends, now=now) for each in pod.spec.containers],
    }


def _container_status(container: Container, *, ended: bool, now: str) -> dict[str, Any]:
    terminated = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": container.image or "",
        "containerID": f"local://{container.name}",
        "ready": not ended,
        "started": not ended,
        "restartCount": 0,
        "state": {"terminated": terminated} if ended else {"running": {"startedAt": now}},
    }


def _name(thing: Node | Pod) -> str:
    assert thing.metadata
    assert thing.metadata.name
    return thing.metadata.name


def _namespace(pod: Pod) -> str:
    assert pod.metadata
    assert pod.metadata.namespace
    return pod.metadata.namespace


def _uid(node: Node) -> str:
    assert node.metadata
    assert node.metadata.uid
    return node.metadata.uid


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
