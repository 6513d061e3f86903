# SPDX-License-Identifier: Apache-2.0
"""Private endpoints in networks of one's own, and the private zones in which names lead to them.

Those that Managed Grafana keeps in Microsoft's networks are in `types_grafana.py`. No record is written, and no name is
resolved, here.
"""

from typing import Any, Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Finder, Knowledge, arm_type, guid
from localcloud.azure.records import Json, Resource
from localcloud.azure.types_network import NETWORK

ENDPOINT: Final = "azure-native:network:PrivateEndpoint"
ZONE: Final = "azure-native:privatedns:PrivateZone"
LINK: Final = "azure-native:privatedns:VirtualNetworkLink"
STATE: Final = "privateLinkServiceConnectionState"
GROUPS: Final = {"microsoft.dashboard/grafana": ["grafana"]}
"""What of a resource an endpoint can lead to. https://learn.microsoft.com/azure/private-link/private-endpoint-overview"""


def connections_to(target: Resource, store: Finder) -> list[Json]:
    """The private endpoint connections that a resource shows."""
    return [
        {
            "id": f"{target.id}/privateEndpointConnections/{endpoint.name}-{guid(endpoint.id)[:8]}",
            "name": f"{endpoint.name}-{guid(endpoint.id)[:8]}",
            "type": f"{arm_type(target.id)}/privateEndpointConnections",
            "properties": {
                "groupIds": connection.get("groupIds", []),
                "privateEndpoint": {"id": endpoint.id},
                STATE: connection[STATE],
                "provisioningState": "Succeeded",
            },
        }
        for endpoint in store.resources(token=ENDPOINT)
        for connection in endpoint.outputs["privateLinkServiceConnections"]
        if str(connection.get("privateLinkServiceId", "")).lower() == target.id.lower()
    ]


def _endpoint(asked: Asked) -> Json:
    # Whoever deploys owns all that is here, and who may approve need not ask.
    approved = {"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"}
    connections = [
        {
            "id": f"{asked.id}/privateLinkServiceConnections/{connection.get('name')}",
            "provisioningState": "Succeeded",
            STATE: approved,
            **connection,
        }
        for connection in asked.inputs.get("privateLinkServiceConnections") or ()
    ]
    nic = (
        f"{asked.id.rpartition('/privateEndpoints/')[0]}/networkInterfaces/{asked.name}.nic.{guid(asked.id)}"
    )
    return {
        "privateLinkServiceConnections": asked.kept("privateLinkServiceConnections") or connections,
        "manualPrivateLinkServiceConnections": [],
        "customDnsConfigs": [],
        "networkInterfaces": [{"id": nic}],
    }


def _endpoint_allowed(asked: Asked) -> None:
    connections: list[Json] = asked.inputs.get("privateLinkServiceConnections") or []
    if len(connections) != 1 or asked.inputs.get("manualPrivateLinkServiceConnections"):
        raise AzureError(
            501,
            "NotSimulated",
            f"Private endpoint {asked.name}: the local cloud knows endpoints with exactly one connection, which needs "
            "no approval by hand.",
        )
    if not (asked.inputs.get("subnet") or {}).get("id"):
        raise AzureError(400, "MissingSubnet", f"Private endpoint {asked.name} has no subnet.")
    _leads_to_a_group(asked, connections[0])


def _leads_to_a_group(asked: Asked, connection: Json) -> None:
    target = str(connection.get("privateLinkServiceId", ""))
    offered = GROUPS.get(arm_type(target).lower()) if target else None
    if offered is None:
        raise AzureError(
            501,
            "NotSimulated",
            f"Private endpoint {asked.name}: the local cloud knows none to {target or 'nothing'}.",
        )
    if connection.get("groupIds") != offered:
        raise AzureError(
            400,
            "PrivateEndpointInvalidGroupId",
            f"Private endpoint {asked.name}: groupIds of {target} must be {offered}; they are "
            f"{connection.get('groupIds')}.",
        )


def _zone_group_allowed(asked: Asked) -> None:
    for config in asked.inputs.get("privateDnsZoneConfigs") or ():
        zone = asked.store.resource(str(config.get("privateDnsZoneId", "")))
        if zone is None or zone.token != ZONE:
            raise AzureError(
                400, "InvalidPrivateDnsZoneIds", f"{config.get('privateDnsZoneId')} is no private zone."
            )


def _unlinked(zone: Resource, store: Finder) -> None:
    links = store.resources(token=LINK, under=zone.id)
    if links:
        raise AzureError(
            409,
            "CannotDeleteResource",
            f"Can not delete {zone.id} before its nested resources are deleted: {links[0].name}.",
        )


def _link_allowed(asked: Asked) -> None:
    """A network finds a name in one zone: it can be linked to one zone of a name."""
    network = _id(asked.inputs.get("virtualNetwork"))
    zone = asked.id.rsplit("/", 2)[0]
    for other in asked.store.resources(token=LINK):
        other_zone = other.id.rsplit("/", 2)[0]
        same_name = other_zone.rpartition("/")[2].lower() == zone.rpartition("/")[2].lower()
        if (
            other.id.lower() != asked.id.lower()
            and same_name
            and _id(other.inputs.get("virtualNetwork")) == network
        ):
            raise AzureError(
                409,
                "Conflict",
                f"A virtual network cannot be linked to multiple zones with overlapping namespaces: {network} is "
                f"linked to {other_zone}.",
            )


def _id(reference: Any) -> str:
    return str((reference or {}).get("id", "")).lower()


KNOWN: Final = {
    "network:PrivateEndpoint": Knowledge(
        id=f"{NETWORK}/privateEndpoints/{{privateEndpointName}}",
        name="privateEndpointName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,62}\w)?",
        name_rule="1 to 64 letters, digits, underscores, periods and hyphens",
        computed=_endpoint,
        allowed=_endpoint_allowed,
    ),
    "network:PrivateDnsZoneGroup": Knowledge(
        id=f"{NETWORK}/privateEndpoints/{{privateEndpointName}}/privateDnsZoneGroups/{{privateDnsZoneGroupName}}",
        name="privateDnsZoneGroupName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,78}\w)?",
        name_rule="1 to 80 letters, digits, underscores, periods and hyphens",
        allowed=_zone_group_allowed,
    ),
    "privatedns:PrivateZone": Knowledge(
        id=f"{NETWORK}/privateDnsZones/{{privateZoneName}}",
        name="privateZoneName",
        name_pattern=r"[\w-]{1,63}(\.[\w-]{1,63}){1,33}",
        name_rule="2 to 34 labels of letters, digits, underscores and hyphens, separated by periods",
        deletable=_unlinked,
    ),
    "privatedns:VirtualNetworkLink": Knowledge(
        id=f"{NETWORK}/privateDnsZones/{{privateZoneName}}/virtualNetworkLinks/{{virtualNetworkLinkName}}",
        name="virtualNetworkLinkName",
        name_pattern=r"[A-Za-z0-9]([\w.-]{0,78}\w)?",
        name_rule="1 to 80 letters, digits, underscores, periods and hyphens",
        allowed=_link_allowed,
    ),
}
