# SPDX-License-Identifier: Apache-2.0
"""What AKS does inside a cluster: nodes for pools, and the pods of the Inspektor Gadget extension.

The control plane is the local cloud's; its kubelet loop runs what is made here. Everything may be repeated.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Final

from lightkube import ApiError, Client, KubeConfig
from lightkube.models.apps_v1 import DaemonSetSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec, Toleration
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Namespace, Node
from lightkube.types import PatchType

from localcloud.azure import aks_automatic
from localcloud.azure.effects import EffectFailed, Place
from localcloud.azure.nodes import POOL_ID_ANNOTATION, Pool
from localcloud.azure.records import Json, Resource
from localcloud.azure.types_cluster import INSPEKTOR_GADGET
from localcloud.azure.types_monitor import ASSOCIATION
from localcloud.kube import karpenter_crds

READY_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.1
SYSTEM_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
GADGET: Final = "gadget"
GADGET_LABELS: Final = {"k8s-app": GADGET}
RELEASE_ANNOTATION: Final = "localcloud.gpuheap/extension"
"""On what an extension installed: the extension's id."""


def keep_cluster(cluster: Resource, place: Place) -> None:
    """The nodes of the pools that are declared in the cluster itself, and Karpenter's kinds where it makes nodes."""
    kubernetes = _client(place)
    if aks_automatic.provisions_nodes(cluster):
        karpenter_crds.install(kubernetes)
    for properties in cluster.outputs.get("agentPoolProfiles", ()):
        _keep_nodes(kubernetes, _pool(f"{cluster.id}/agentPools/{properties['name']}", properties, cluster))


def remove_cluster(cluster: Resource, place: Place) -> None:
    """A cluster goes with all that is in it; the control plane stays, for the next one."""
    kubernetes = _client(place)
    for node in list(kubernetes.list(Node)):
        if _pool_id(node).startswith(f"{cluster.id.lower()}/"):
            _delete(kubernetes, Node, _name(node))
    karpenter_crds.remove(kubernetes)
    for namespace in list(kubernetes.list(Namespace)):
        if _name(namespace) not in SYSTEM_NAMESPACES:
            _delete(kubernetes, Namespace, _name(namespace))


def keep_pool(pool: Resource, place: Place) -> None:
    """As many nodes as the pool has, like it."""
    cluster = place.store.resource(pool.id.rsplit("/", 2)[0])
    if cluster:
        _keep_nodes(_client(place), _pool(pool.id, pool.outputs, cluster))


def remove_pool(pool: Resource, place: Place) -> None:
    kubernetes = _client(place)
    for node in list(kubernetes.list(Node)):
        if _pool_id(node) == pool.id.lower():
            _delete(kubernetes, Node, _name(node))


def keep_extension(extension: Resource, place: Place) -> None:
    """Install Inspektor Gadget, and wait until its pods are ready on every node. Raises EffectFailed.

    Other extensions have nothing to install here.
    """
    if str(extension.outputs.get("extensionType", "")).lower() != INSPEKTOR_GADGET:
        return
    cluster = place.store.resource(extension.id.split("/providers/Microsoft.KubernetesConfiguration/")[0])
    settings = extension.outputs.get("configurationSettings", {})
    if settings.get("azureMonitor.enabled") == "true":
        _metrics_pipeline(cluster, place)
    kubernetes, name = _client(place), _release_namespace(extension)
    mine = {RELEASE_ANNOTATION: extension.id}
    try:
        kubernetes.create(Namespace(metadata=ObjectMeta(name=name, annotations=mine)))
    except ApiError as error:
        if error.status.code != 409:
            raise
        there = kubernetes.get(Namespace, name).metadata
        if ((there and there.annotations) or {}).get(RELEASE_ANNOTATION) != extension.id:
            raise EffectFailed(
                f'Helm installation failed: namespaces "{name}" already exists. Delete it, and create'
                " nothing in it before the extension."
            ) from error
    daemon_set = _daemon_set(name, mine, settings)
    kubernetes.apply(daemon_set, field_manager="aks-extension-manager", force=True)
    _wait(lambda: _ready(kubernetes, name), f"the pods of DaemonSet {name}/{GADGET} to become ready")


def remove_extension(extension: Resource, place: Place) -> None:
    """Uninstall it, and wait until its namespace is gone with all that is in it. Raises EffectFailed."""
    kubernetes, name = _client(place), _release_namespace(extension)
    there = _get_namespace(kubernetes, name)
    annotations = (there and there.metadata and there.metadata.annotations) or {}
    if annotations.get(RELEASE_ANNOTATION) != extension.id:
        return  # never installed, or somebody else's
    _delete(kubernetes, DaemonSet, GADGET, namespace=name)
    _delete(kubernetes, Namespace, name)
    _wait(lambda: _get_namespace(kubernetes, name) is None, f"namespace {name} to be deleted")


def _metrics_pipeline(cluster: Resource | None, place: Place) -> None:
    """With azureMonitor.enabled the chart has a PodMonitor, and its definition comes with the metrics add-on."""
    profile = (cluster.outputs.get("azureMonitorProfile") or {}) if cluster else {}
    missing = []
    if not (profile.get("metrics") or {}).get("enabled"):
        missing.append("azureMonitorProfile.metrics.enabled is not true on the cluster")
    associations = place.store.resources(token=ASSOCIATION, under=cluster.id if cluster else "/")
    if not any(association.outputs.get("dataCollectionRuleId") for association in associations):
        missing.append("the cluster has no association with a data collection rule")
    if missing:
        raise EffectFailed(
            'Helm installation failed: no matches for kind "PodMonitor" in version "azmonitoring.coreos.com/v1"'
            f" (azureMonitor.enabled=true, but {' and '.join(missing)})"
        )


def _daemon_set(namespace: str, annotations: dict[str, str], settings: Json) -> DaemonSet:
    """The shape of Inspektor Gadget's own: everywhere, whatever the taints."""
    # As with the real one, changed settings alone do not restart the pods.
    everywhere = [
        Toleration(operator="Exists", effect="NoSchedule"),
        Toleration(operator="Exists", effect="NoExecute"),
    ]
    container = Container(
        name=GADGET, image="mcr.microsoft.com/oss/v2/inspektor-gadget/inspektor-gadget:v0.55.0"
    )
    return DaemonSet(
        apiVersion="apps/v1",
        kind="DaemonSet",
        metadata=ObjectMeta(
            name=GADGET,
            namespace=namespace,
            labels=GADGET_LABELS,
            annotations={
                **annotations,
                # Where the real chart has a ConfigMap: pods that run do not see a change of it.
                "localcloud.gpuheap/settings": json.dumps(settings, sort_keys=True),
            },
        ),
        spec=DaemonSetSpec(
            selector=LabelSelector(matchLabels=GADGET_LABELS),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=GADGET_LABELS),
                spec=PodSpec(containers=[container], hostPID=True, tolerations=everywhere),
            ),
        ),
    )


def _ready(kubernetes: Client, namespace: str) -> bool:
    found = kubernetes.get(DaemonSet, GADGET, namespace=namespace)
    status, generation = found.status, found.metadata and found.metadata.generation
    if status is None or (status.observedGeneration or 0) < (generation or 0):
        return False
    return (status.numberReady or 0) >= status.desiredNumberScheduled


def _release_namespace(extension: Resource) -> str:
    scope = (extension.outputs.get("scope") or {}).get("cluster") or {}
    return str(scope.get("releaseNamespace") or GADGET)


def _pool(id: str, properties: Json, cluster: Resource) -> Pool:
    return Pool(
        id=id,
        properties=properties,
        node_resource_group=cluster.outputs["nodeResourceGroup"],
        location=cluster.outputs["location"],
    )


def _keep_nodes(kubernetes: Client, pool: Pool) -> None:
    wanted = {_name(node): node for node in pool.nodes()}
    there = {_name(node) for node in kubernetes.list(Node) if _pool_id(node) == pool.id.lower()}
    for name in sorted(there - wanted.keys(), reverse=True):
        _delete(kubernetes, Node, name)
    for name, node in wanted.items():
        if name in there:
            change = {"metadata": {"labels": node.metadata.labels if node.metadata else {}}}
            kubernetes.patch(Node, name, change, patch_type=PatchType.MERGE)
        else:
            kubernetes.create(node)
            assert node.status
            resources = {"capacity": node.status.capacity, "allocatable": node.status.allocatable}
            kubernetes.patch(Node.Status, name, {"status": resources}, patch_type=PatchType.MERGE)


def _pool_id(node: Node) -> str:
    annotations = (node.metadata and node.metadata.annotations) or {}
    return str(annotations.get(POOL_ID_ANNOTATION, "")).lower()


def _name(resource: Any) -> str:
    return str(resource.metadata.name)


def _get_namespace(kubernetes: Client, name: str) -> Namespace | None:
    try:
        return kubernetes.get(Namespace, name)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None


def _delete(kubernetes: Client, kind: Any, name: str, *, namespace: str | None = None) -> None:
    """That it is gone already is fine."""
    where: dict[str, Any] = {"namespace": namespace} if namespace else {}
    try:
        kubernetes.delete(kind, name, **where)
    except ApiError as error:
        if error.status.code != 404:
            raise


def _wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise EffectFailed(f"timed out after {READY_SECONDS:.0f} s waiting for {what}")
        time.sleep(POLL_SECONDS)


def _client(place: Place) -> Client:
    return Client(KubeConfig.from_file(place.surroundings.kubeconfig()).get())
