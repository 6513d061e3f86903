# SPDX-License-Identifier: Apache-2.0
"""What a Service's annotations ask of Azure, and the Private Link Service that follows from them.

Values in, values out. https://cloud-provider-azure.sigs.k8s.io/topics/pls-integration/
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightkube.resources.core_v1 import Service

from localcloud.azure.records import Resource

TOKEN: Final = "azure-native:network:PrivateLinkService"
CLUSTER_TOKEN: Final = "azure-native:containerservice:ManagedCluster"
PREFIX: Final = "service.beta.kubernetes.io/azure-"
# The tags by which the real controller knows what it made (pkg/consts/consts.go of cloud-provider-azure).
OWNER_TAG: Final = "k8s-azure-owner-service"
CLUSTER_TAG: Final = "k8s-azure-cluster-name"
ADDRESS_COUNTS: Final = range(1, 9)
CONFIGURATION_NAME_CHARACTERS: Final = 80
AKS_SUBNET: Final = "aks-subnet"
"""The subnet of a network that AKS makes itself; that network is not simulated."""


class NotPossible(Exception):
    """The controller refuses what the annotations ask for; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the cloud controller knows of the cluster it runs in."""

    name: str
    subscription: str
    node_resource_group: str
    location: str
    node_subnet_id: str | None
    """The ARM id of the nodes' subnet, if it is not one that AKS made."""

    @classmethod
    def of(cls, resource: Resource) -> "Cluster":
        """Of a stored `ManagedCluster`."""
        segments = resource.id.split("/")  # "", subscriptions, <id>, resourceGroups, <name>, ...
        shown = {**resource.inputs, **resource.outputs}
        location = str(shown.get("location", ""))
        default_group = f"MC_{segments[4]}_{resource.name}_{location}"
        subnets = (pool.get("vnetSubnetID") for pool in shown.get("agentPoolProfiles") or [])
        return cls(
            name=resource.name,
            subscription=segments[2],
            node_resource_group=str(shown.get("nodeResourceGroup") or default_group),
            location=location,
            node_subnet_id=next((each for each in subnets if each), None),
        )


def is_internal(service: Service) -> bool:
    return _annotation(service, "load-balancer-internal") == "true"


def wants_private_link(service: Service) -> bool:
    return _is_true(service, "pls-create")


def owner(service: Service) -> str:
    """`namespace/name`, as it stands in the tag."""
    assert service.metadata
    return f"{service.metadata.namespace}/{service.metadata.name}"


def subnet_id(service: Service, cluster: Cluster) -> str | None:
    """Where the Private Link Service has its addresses; None in a network that AKS made."""
    if cluster.node_subnet_id is None:
        return None
    network, _, node_subnet = cluster.node_subnet_id.rpartition("/subnets/")
    return f"{network}/subnets/{_subnet_annotation(service) or node_subnet}"


def private_link_service(service: Service, cluster: Cluster, *, name: str | None = None) -> Resource:
    """What the annotations describe, complete but without a connection. Raises NotPossible.

    `name` is what it is called already, which holds where no annotation says another.
    """
    if not is_internal(service) and not _is_true(service, "disable-load-balancer-floating-ip"):
        raise NotPossible(
            "a Service that requires a private link service must be internal "
            f'({PREFIX}load-balancer-internal: "true") or disable floating IP'
        )
    name = _annotation(service, "pls-name") or name or f"pls-{_load_balancer_name(service)}"
    group = _annotation(service, "pls-resource-group") or cluster.node_resource_group
    visibility = _annotation(service, "pls-visibility").split()
    properties: dict[str, Any] = {
        "location": cluster.location,
        "tags": {OWNER_TAG: owner(service), CLUSTER_TAG: cluster.name},
        "visibility": {"subscriptions": ["*"] if "*" in visibility else visibility},
        "autoApproval": {"subscriptions": _annotation(service, "pls-auto-approval").split()},
        "enableProxyProtocol": _is_true(service, "pls-proxy-protocol"),
        "fqdns": _annotation(service, "pls-fqdns").split(),
        "ipConfigurations": _address_configurations(service, name, subnet_id(service, cluster)),
        "loadBalancerFrontendIpConfigurations": [{"id": _frontend_id(service, cluster)}],
    }
    return Resource(
        id=f"/subscriptions/{cluster.subscription}/resourceGroups/{group}"
        f"/providers/Microsoft.Network/privateLinkServices/{name}",
        token=TOKEN,
        inputs=properties,
        outputs={
            **properties,
            "name": name,
            "type": "Microsoft.Network/privateLinkServices",
            "alias": f"{name}.{cluster.location}.azure.privatelinkservice",
            "provisioningState": "Succeeded",
            "privateEndpointConnections": [],
            "networkInterfaces": [],
        },
    )


def _address_configurations(service: Service, name: str, subnet: str | None) -> list[dict[str, Any]]:
    """Addresses asked for by value come first, and the first of them is primary; the rest are given by Azure."""
    given = _static_addresses(service)
    count = _address_count(service)
    if count < len(given):
        raise NotPossible(
            f"{PREFIX}pls-ip-configuration-ip-address names {len(given)} addresses, "
            f"{PREFIX}pls-ip-configuration-ip-address-count allows {count}"
        )
    subnet_name = subnet.rpartition("/")[2] if subnet else _subnet_annotation(service) or AKS_SUBNET
    suffixes = [*(f"-static-{each}" for each in given), *(f"-dynamic-{n}" for n in range(count - len(given)))]
    made = []
    for number, suffix in enumerate(suffixes):
        static = number < len(given)
        made.append(
            {
                "name": f"{subnet_name}-{name}"[: CONFIGURATION_NAME_CHARACTERS - len(suffix)] + suffix,
                "primary": number == 0,
                "privateIPAddressVersion": "IPv4",
                "privateIPAllocationMethod": "Static" if static else "Dynamic",
                **({"privateIPAddress": given[number]} if static else {}),
                **({"subnet": {"id": subnet}} if subnet else {}),
            }
        )
    return made


def _static_addresses(service: Service) -> Sequence[str]:
    given = list(dict.fromkeys(_annotation(service, "pls-ip-configuration-ip-address").split()))
    for text in given:
        try:
            ipaddress.IPv4Address(text)
        except ValueError as error:
            raise NotPossible(
                f"{PREFIX}pls-ip-configuration-ip-address: {text} is no IPv4 address"
            ) from error
    return given


def _address_count(service: Service) -> int:
    text = _annotation(service, "pls-ip-configuration-ip-address-count") or "1"
    if not text.isdecimal() or int(text) not in ADDRESS_COUNTS:
        raise NotPossible(
            f"{PREFIX}pls-ip-configuration-ip-address-count must be "
            f"{ADDRESS_COUNTS[0]} to {ADDRESS_COUNTS[-1]}, it is {text}"
        )
    return int(text)


def _subnet_annotation(service: Service) -> str:
    internal = _annotation(service, "load-balancer-internal-subnet") if is_internal(service) else ""
    return _annotation(service, "pls-ip-configuration-subnet") or internal


def _frontend_id(service: Service, cluster: Cluster) -> str:
    group = f"/subscriptions/{cluster.subscription}/resourceGroups/{cluster.node_resource_group}"
    balancer = "kubernetes-internal" if is_internal(service) else "kubernetes"
    frontends = f"{group}/providers/Microsoft.Network/loadBalancers/{balancer}/frontendIPConfigurations"
    return f"{frontends}/{_load_balancer_name(service)}"


def _load_balancer_name(service: Service) -> str:
    """Kubernetes' DefaultLoadBalancerName: the letter a and the UID, cut to 32 characters."""
    assert service.metadata
    assert service.metadata.uid
    return f"a{service.metadata.uid.replace('-', '')}"[:32]


def _is_true(service: Service, name: str) -> bool:
    return _annotation(service, name).lower() == "true"


def _annotation(service: Service, name: str) -> str:
    annotations: Mapping[str, str] = (service.metadata and service.metadata.annotations) or {}
    return annotations.get(f"{PREFIX}{name}", "").strip()
