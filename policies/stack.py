# SPDX-License-Identifier: Apache-2.0
"""What no stack of ours may declare, whatever its configuration.

Pyroscope in the open, links that approve themselves, privileged agents, a production cluster that one command
destroys, resources that belong to nobody.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from components.inspektor_gadget import GADGET_NAMESPACE
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE

ANNOTATION: Final = "service.beta.kubernetes.io/azure-"
POD_KINDS: Final = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job")
TAGGED: Final = (
    "containerservice:ManagedCluster",
    "dashboard:Grafana",
    "managedidentity:UserAssignedIdentity",
    "monitor:AzureMonitorWorkspace",
    "network:PrivateEndpoint",
    "network:VirtualNetwork",
    "privatedns:PrivateZone",
    "resources:ResourceGroup",
    "storage:StorageAccount",
)
"""Types of azure-native whose instances cost money or hold rights, and have tags."""

PRODUCTION: Final = ("prod", "production")


def public_pyroscope(resource_type: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Profiles name code, and Pyroscope asks nobody who they are."""
    metadata, spec = _map(inputs.get("metadata")), _map(inputs.get("spec"))
    if metadata.get("namespace") not in (GADGET_NAMESPACE, AGENT_NAMESPACE):
        return
    match _kubernetes_kind(resource_type):
        case "Service":
            annotations = _map(metadata.get("annotations"))
            internal = annotations.get(f"{ANNOTATION}load-balancer-internal") == "true"
            if spec.get("type") == "LoadBalancer" and not internal:
                yield (
                    "this load balancer would have a public address, and Pyroscope has no log-in. Add to "
                    f"metadata.annotations: {ANNOTATION}load-balancer-internal: 'true'"
                )
            if spec.get("type") == "NodePort":
                yield "a port of every node would lead to Pyroscope, which has no log-in. Write type: ClusterIP"
        case "Ingress" | "HTTPRoute":
            yield "an ingress would lead to Pyroscope, which has no log-in. Grafana reaches it by Private Link"


def self_approving_link(resource_type: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Who may see a Private Link Service may ask for a connection; approval is the only gate."""
    if _kubernetes_kind(resource_type) == "Service":
        annotations = _map(_map(inputs.get("metadata")).get("annotations"))
        visible = str(annotations.get(f"{ANNOTATION}pls-visibility") or "").split()
        approved = str(annotations.get(f"{ANNOTATION}pls-auto-approval") or "").split()
        fix = f"Remove {ANNOTATION}pls-auto-approval: the stack approves its own connection"
    elif resource_type == "azure-native:network:PrivateLinkService":
        visible = _list(_map(inputs.get("visibility")).get("subscriptions"))
        approved = _list(_map(inputs.get("autoApproval")).get("subscriptions"))
        fix = "Remove autoApproval: the stack approves its own connection"
    else:
        return
    if "*" in approved:
        yield f"connections from every subscription would be approved by themselves. {fix}"
    elif "*" in visible and approved:
        yield f"everybody may see this link, and connections to it are approved by themselves. {fix}"


def privileged_agent(resource_type: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """The agent names each right that it needs; `privileged` is all of them."""
    if _kubernetes_kind(resource_type) not in (*POD_KINDS, "Pod"):
        return
    if _map(inputs.get("metadata")).get("namespace") != AGENT_NAMESPACE:
        return
    spec = _map(inputs.get("spec"))
    pod = spec if resource_type.endswith(":Pod") else _map(_map(spec.get("template")).get("spec"))
    for container in [*_list(pod.get("containers")), *_list(pod.get("initContainers"))]:
        security = _map(_map(container).get("securityContext"))
        added = _list(_map(security.get("capabilities")).get("add"))
        if security.get("privileged") is True or "ALL" in added:
            yield (
                f"container {_map(container).get('name')} has every right on the node. Write privileged: false, and "
                "in capabilities.add those that it needs"
            )


def unprotected_cluster(resource_type: str, inputs: Mapping[str, Any], *, protected: bool) -> Iterator[str]:
    """A production cluster is not destroyed by one command, or by a change that replaces it."""
    if resource_type != "azure-native:containerservice:ManagedCluster" or protected:
        return
    if str(_map(inputs.get("tags")).get("environment", "")).lower() in PRODUCTION:
        yield "a production cluster can be destroyed by one command. Set gpuheap:cluster.protect to true"


def missing_tags(resource_type: str, inputs: Mapping[str, Any], *, required: Sequence[str]) -> Iterator[str]:
    """Whose it is, and what it costs."""
    if resource_type.removeprefix("azure-native:") not in TAGGED:
        return
    missing = [name for name in required if not _map(inputs.get("tags")).get(name)]
    if missing:
        yield f"these tags are missing: {', '.join(missing)}. Set them in gpuheap:tags"


def _kubernetes_kind(resource_type: str) -> str:
    return resource_type.rpartition(":")[2] if resource_type.startswith("kubernetes:") else ""


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
