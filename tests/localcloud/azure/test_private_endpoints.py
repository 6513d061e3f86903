# SPDX-License-Identifier: Apache-2.0
"""Private endpoints to Grafana, and their zones, asked as the engine asks; what Grafana then answers."""

from typing import Any

import grpc
import httpx
import pytest
from azure.core.credentials import TokenCredential
from azure.mgmt.network.models import PrivateEndpoint

from localcloud.azure import shapes
from localcloud.azure.grafana import ADMIN
from localcloud.azure.records import Json, Resource
from localcloud.azure.server import Servers
from localcloud.azure.store import Store
from tests.localcloud.azure.asking import GROUP, Engine
from tests.localcloud.azure.test_grafana import assign

GRAFANA, ENDPOINT = "azure-native:dashboard:Grafana", "azure-native:network:PrivateEndpoint"
NETWORK, SUBNET = "azure-native:network:VirtualNetwork", "azure-native:network:Subnet"
ZONE, LINK = "azure-native:privatedns:PrivateZone", "azure-native:privatedns:VirtualNetworkLink"
ZONE_GROUP = "azure-native:network:PrivateDnsZoneGroup"
WORKSPACE_ID = f"{GROUP}/providers/Microsoft.Dashboard/grafana/graf"


@pytest.fixture
def workspace(engine: Engine, group: Resource) -> tuple[str, Json]:
    inputs = {
        "resourceGroupName": "rg",
        "workspaceName": "graf",
        "sku": {"name": "Standard"},
        "identity": {"type": "SystemAssigned"},
        "properties": {"publicNetworkAccess": "Disabled"},
    }
    made = engine.create(GRAFANA, inputs)
    assign(engine, ADMIN, WORKSPACE_ID)
    return made


@pytest.fixture
def subnet(engine: Engine, group: Resource) -> str:
    engine.create(
        NETWORK,
        {
            "resourceGroupName": "rg",
            "virtualNetworkName": "vnet",
            "location": "westeurope",
            "addressSpace": {"addressPrefixes": ["10.0.0.0/8"]},
        },
    )
    inputs = {
        "resourceGroupName": "rg",
        "virtualNetworkName": "vnet",
        "subnetName": "pe",
        "addressPrefix": "10.0.0.0/28",
    }
    return engine.create(SUBNET, inputs)[0]


def _endpoint(subnet: str, **connection: object) -> Json:
    to_grafana = {"name": "grafana", "privateLinkServiceId": WORKSPACE_ID, "groupIds": ["grafana"]}
    return {
        "resourceGroupName": "rg",
        "privateEndpointName": "to-grafana",
        "location": "westeurope",
        "subnet": {"id": subnet},
        "privateLinkServiceConnections": [{**to_grafana, **connection}],
    }


def _zone(engine: Engine, group: str = "rg") -> str:
    inputs = {
        "resourceGroupName": group,
        "privateZoneName": "privatelink.grafana.azure.com",
        "location": "global",
    }
    return engine.create(ZONE, inputs)[0]


def _link(name: str = "own", group: str = "rg") -> Json:
    return {
        "resourceGroupName": group,
        "privateZoneName": "privatelink.grafana.azure.com",
        "virtualNetworkLinkName": name,
        "location": "global",
        "registrationEnabled": False,
        "virtualNetwork": {"id": f"{GROUP}/providers/Microsoft.Network/virtualNetworks/vnet"},
    }


def _health(servers: Servers, credential: TokenCredential) -> httpx.Response:
    token = credential.get_token("ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default").token
    return httpx.get(
        f"{servers.arm}/grafana/graf/api/folders", headers={"Authorization": f"Bearer {token}"}, timeout=10
    )


def test_a_private_workspace_answers_by_its_endpoint_alone(
    engine: Engine, workspace: tuple[str, Json], subnet: str, servers: Servers, credential: TokenCredential
) -> None:
    refused = _health(servers, credential)
    assert refused.status_code == 403
    assert "Public network access of graf is disabled" in refused.text
    id, made = engine.create(ENDPOINT, _endpoint(subnet))
    state = made["privateLinkServiceConnections"][0]["privateLinkServiceConnectionState"]
    assert state["status"] == "Approved"
    assert _health(servers, credential).status_code == 200
    engine.delete(ENDPOINT, id)
    assert _health(servers, credential).status_code == 403


def test_a_workspace_shows_who_leads_to_it(engine: Engine, workspace: tuple[str, Json], subnet: str) -> None:
    id, _ = engine.create(ENDPOINT, _endpoint(subnet))
    shown: Any = engine.read(GRAFANA, WORKSPACE_ID)
    (connection,) = shown.properties["properties"]["privateEndpointConnections"]
    assert connection["properties"]["privateEndpoint"]["id"] == id
    assert list(connection["properties"]["groupIds"]) == ["grafana"]


def test_azures_own_client_reads_the_endpoint(
    engine: Engine, workspace: tuple[str, Json], subnet: str, store: Store
) -> None:
    id, _ = engine.create(ENDPOINT, _endpoint(subnet))
    stored = store.resource(id)
    assert stored
    read = PrivateEndpoint(shapes.arm_body(stored))
    assert read.subnet and read.subnet.id == subnet
    (connection,) = read.private_link_service_connections or []
    assert connection.private_link_service_id == WORKSPACE_ID
    state = connection.private_link_service_connection_state
    assert state and state.status == "Approved"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groupIds": ["vault"]}, r"groupIds of .* must be \['grafana'\]"),
        ({"groupIds": []}, r"groupIds of .* must be \['grafana'\]"),
        ({"privateLinkServiceId": f"{WORKSPACE_ID}-gone"}, "was not found"),
    ],
)
def test_an_endpoint_leads_to_a_group_of_what_is_there(
    engine: Engine, workspace: tuple[str, Json], subnet: str, change: Json, reason: str
) -> None:
    with pytest.raises(grpc.RpcError, match=reason):
        engine.create(ENDPOINT, _endpoint(subnet, **change))


def test_a_subnet_stays_while_an_endpoint_is_in_it(
    engine: Engine, workspace: tuple[str, Json], subnet: str
) -> None:
    engine.create(ENDPOINT, _endpoint(subnet))
    with pytest.raises(grpc.RpcError, match=r"in use by .*/privateEndpoints/to-grafana"):
        engine.delete(SUBNET, subnet)


def test_a_record_needs_its_zone_and_a_zone_outlives_its_links(
    engine: Engine, workspace: tuple[str, Json], subnet: str
) -> None:
    engine.create(ENDPOINT, _endpoint(subnet))
    record = {
        "resourceGroupName": "rg",
        "privateEndpointName": "to-grafana",
        "privateDnsZoneGroupName": "default",
        "privateDnsZoneConfigs": [{"name": "grafana", "privateDnsZoneId": subnet}],
    }
    with pytest.raises(grpc.RpcError, match="is no private zone"):
        engine.create(ZONE_GROUP, record)
    zone = _zone(engine)
    record["privateDnsZoneConfigs"] = [{"name": "grafana", "privateDnsZoneId": zone}]
    engine.create(ZONE_GROUP, record)
    engine.create(LINK, _link())
    with pytest.raises(grpc.RpcError, match="before its nested resources are deleted: own"):
        engine.delete(ZONE, zone)


def test_a_network_finds_a_name_in_one_zone_alone(engine: Engine, subnet: str, store: Store) -> None:
    other = Resource(
        id=GROUP.replace("/rg", "/hub"), token="azure-native:resources:ResourceGroup", outputs={"name": "hub"}
    )
    store.create_resource(other, actor="test")
    _zone(engine)
    engine.create(LINK, _link())
    _zone(engine, "hub")
    with pytest.raises(grpc.RpcError, match="cannot be linked to multiple zones"):
        engine.create(LINK, _link("second", "hub"))
