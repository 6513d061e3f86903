# SPDX-License-Identifier: Apache-2.0
"""Virtual networks and subnets. Private Link Services are made by the cluster's cloud controller, not by a program."""

from typing import Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Finder, Knowledge, guid
from localcloud.azure.records import Json, Resource
from localcloud.azure.types_basic import GROUP

NETWORK: Final = f"{GROUP}/providers/Microsoft.Network"
SUBNET: Final = "azure-native:network:Subnet"
PRIVATE_LINK_SERVICE: Final = "azure-native:network:PrivateLinkService"


def _virtual_network(asked: Asked) -> Json:
    inline = asked.inputs.get("subnets")
    return {
        "resourceGuid": guid(asked.id),
        "enableDdosProtection": asked.inputs.get("enableDdosProtection", False),
        "flowLogs": [],
        "subnets": [{**subnet, "id": f"{asked.id}/subnets/{subnet.get('name')}"} for subnet in inline or ()],
    }


def _with_subnets(network: Resource, store: Finder) -> Json:
    """A network shows its subnets, wherever they were declared."""
    subnets = {subnet.get("name"): subnet for subnet in network.outputs.get("subnets", ())}
    for child in store.resources(token=SUBNET, under=network.id):
        subnets[child.name] = {**child.outputs, "id": child.id}
    return {**network.outputs, "subnets": list(subnets.values())}


def _subnet(asked: Asked) -> Json:
    return {
        "privateEndpointNetworkPolicies": asked.inputs.get("privateEndpointNetworkPolicies", "Disabled"),
        "privateLinkServiceNetworkPolicies": asked.inputs.get("privateLinkServiceNetworkPolicies", "Enabled"),
        **{
            name: []
            for name in (
                "ipConfigurations",
                "ipConfigurationProfiles",
                "privateEndpoints",
                "resourceNavigationLinks",
                "serviceAssociationLinks",
            )
        },
        "purpose": "",
    }


def _subnet_allowed(asked: Asked) -> None:
    prefixes = asked.inputs.get("addressPrefixes") or [asked.inputs.get("addressPrefix")]
    if not all(prefixes):
        raise AzureError(400, "InvalidRequestFormat", f"Subnet {asked.name} has no address prefix.")
    before = asked.before and asked.before.inputs
    if before and prefixes != (before.get("addressPrefixes") or [before.get("addressPrefix")]):
        # https://learn.microsoft.com/azure/virtual-network/virtual-network-manage-subnet
        _without_users(asked.id, asked.store, "Updated")


def _unused(subnet: Resource, store: Finder) -> None:
    _without_users(subnet.id, store, "Deleted")


def _without_users(id: str, store: Finder, change: str) -> None:
    """Azure keeps a subnet, and its range, as long as a cluster or a Private Link Service has addresses in it."""
    for user in store.resources():
        if user.token != SUBNET and _mentions(user.outputs, id):
            raise AzureError(
                400,
                f"InUseSubnetCannotBe{change}",
                f"Subnet {id.rpartition('/')[2]} is in use by {user.id} and cannot be {change.lower()}.",
            )


def _mentions(value: object, id: str) -> bool:
    if isinstance(value, dict):
        return any(_mentions(each, id) for key, each in value.items() if key != "subnets")
    if isinstance(value, list):
        return any(_mentions(each, id) for each in value)
    return isinstance(value, str) and value.lower() == id.lower()


def _private_link_service(asked: Asked) -> Json:
    return {
        "alias": f"{asked.name}.{guid(asked.id)}.azure.privatelinkservice",
        "networkInterfaces": [],
        "privateEndpointConnections": asked.kept("privateEndpointConnections") or [],
    }


def _unconnected(service: Resource, _store: Finder) -> None:
    if service.outputs.get("privateEndpointConnections"):
        raise AzureError(
            400,
            "PrivateLinkServiceCannotBeDeletedSinceHasExistingConnections",
            f"Cannot delete private link service {service.id} since it has existing private endpoint connections.",
        )


KNOWN: Final = {
    "network:VirtualNetwork": Knowledge(
        id=f"{NETWORK}/virtualNetworks/{{virtualNetworkName}}",
        name="virtualNetworkName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,62}\w)",
        name_rule="2 to 64 letters, digits, underscores, periods and hyphens",
        computed=_virtual_network,
        view=_with_subnets,
    ),
    "network:Subnet": Knowledge(
        id=f"{NETWORK}/virtualNetworks/{{virtualNetworkName}}/subnets/{{subnetName}}",
        name="subnetName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,78}\w)?",
        name_rule="1 to 80 letters, digits, underscores, periods and hyphens",
        computed=_subnet,
        allowed=_subnet_allowed,
        deletable=_unused,
    ),
    "network:PrivateLinkService": Knowledge(
        id=f"{NETWORK}/privateLinkServices/{{serviceName}}",
        name="serviceName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,78}\w)?",
        name_rule="1 to 80 letters, digits, underscores, periods and hyphens",
        computed=_private_link_service,
        deletable=_unconnected,
    ),
}
