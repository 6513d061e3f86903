# SPDX-License-Identifier: Apache-2.0
"""Resource Manager over HTTPS, called by Azure's own SDK clients."""

from typing import Any

import httpx
import pytest
from azure.core.credentials import TokenCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.dashboard import DashboardManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.network.models import PrivateEndpointConnection, PrivateLinkServiceConnectionState

from localcloud.azure import private_link
from localcloud.azure.records import Fault, Json, Resource
from localcloud.azure.server import Servers
from localcloud.azure.store import Store
from tests.localcloud.azure.asking import GROUP, SUBSCRIPTION, Engine

SERVICE_ID = f"{GROUP}/providers/Microsoft.Network/privateLinkServices/pls"
WORKSPACE_ID = f"{GROUP}/providers/Microsoft.Dashboard/grafana/graf"


@pytest.fixture
def network(servers: Servers, credential: TokenCredential) -> NetworkManagementClient:
    return NetworkManagementClient(credential, SUBSCRIPTION, **_options(servers))


@pytest.fixture
def dashboard(servers: Servers, credential: TokenCredential) -> DashboardManagementClient:
    return DashboardManagementClient(credential, SUBSCRIPTION, **_options(servers))


def _options(servers: Servers) -> dict[str, Any]:
    return {
        "base_url": servers.arm,
        "credential_scopes": ["https://management.azure.com/.default"],
        "retry_total": 0,
        "polling_interval": 0,
    }


@pytest.fixture
def endpoint(engine: Engine, store: Store, group: Resource) -> str:
    """A managed private endpoint that asks for a connection; its id."""
    store.create_resource(
        Resource(
            id=SERVICE_ID,
            token="azure-native:network:PrivateLinkService",
            outputs={"location": "westeurope", "alias": "pls.alias", "visibility": {"subscriptions": ["*"]}},
        ),
        actor="cloud-controller",
    )
    place: Json = {"resourceGroupName": "rg", "workspaceName": "graf"}
    engine.create("azure-native:dashboard:Grafana", {**place, "sku": {"name": "Standard"}})
    asked = {
        **place,
        "managedPrivateEndpointName": "mpe",
        "privateLinkResourceId": SERVICE_ID,
        "requestMessage": "ours",
        "privateLinkServiceUrl": "pyroscope.internal",
    }
    return engine.create("azure-native:dashboard:ManagedPrivateEndpoint", asked)[0]


def _approve(
    network: NetworkManagementClient, name: str, status: str = "Approved"
) -> PrivateEndpointConnection:
    state = PrivateLinkServiceConnectionState(status=status, description="ours", actions_required="None")
    wanted = PrivateEndpointConnection({"properties": {"privateLinkServiceConnectionState": state}})
    services: Any = network.private_link_services
    changed: PrivateEndpointConnection = services.update_private_endpoint_connection(
        "rg", "pls", name, wanted
    )
    return changed


def _connection(network: NetworkManagementClient) -> PrivateEndpointConnection:
    (connection,) = network.private_link_services.get("rg", "pls").private_endpoint_connections or []
    return connection


def _status(connection: PrivateEndpointConnection) -> str | None:
    state = connection.private_link_service_connection_state
    return state.status if state else None


def test_a_private_link_service_shows_who_asks(network: NetworkManagementClient, endpoint: str) -> None:
    service = network.private_link_services.get("rg", "pls")
    assert service.alias == "pls.alias" and service.location == "westeurope"
    connection = _connection(network)
    assert _status(connection) == "Pending"
    assert connection.private_endpoint and str(connection.private_endpoint.id).endswith("grafana-graf-mpe")


def test_an_approval_reaches_grafana_with_a_refresh_and_not_before(
    network: NetworkManagementClient, dashboard: DashboardManagementClient, endpoint: str, store: Store
) -> None:
    name = str(_connection(network).name)
    assert _status(_approve(network, name)) == "Approved"
    assert _status(_connection(network)) == "Approved"

    def seen() -> tuple[str, str]:
        properties = dashboard.managed_private_endpoints.get("rg", "graf", "mpe").properties
        assert properties and properties.connection_state
        return str(properties.connection_state["status"]), properties.private_link_service_private_ip or ""

    assert seen() == ("Pending", "")
    dashboard.managed_private_endpoints.begin_refresh("rg", "graf").result()
    status, address = seen()
    assert status == "Approved" and address.startswith("10.")
    verbs = [
        (event.verb, event.id.rpartition("/")[2])
        for event in store.events()
        if event.verb in ("approve", "refresh")
    ]
    assert verbs == [("approve", name), ("refresh", "graf")]


def test_a_refresh_is_an_operation_that_takes_a_while(
    servers: Servers, credential: TokenCredential, endpoint: str
) -> None:
    token = credential.get_token("https://management.azure.com/.default").token
    headers, url = (
        {"Authorization": f"Bearer {token}"},
        f"{servers.arm}{WORKSPACE_ID}/refreshManagedPrivateEndpoints",
    )
    started = httpx.post(url, params={"api-version": "2024-10-01"}, headers=headers)
    assert started.status_code == 202 and started.content == b""
    statuses = [
        httpx.get(started.headers["Azure-AsyncOperation"], headers=headers).json()["status"] for _ in range(3)
    ]
    assert statuses == ["InProgress", "Succeeded", "Succeeded"]


def test_a_rejected_connection_stays_rejected(
    network: NetworkManagementClient, dashboard: DashboardManagementClient, endpoint: str
) -> None:
    name = str(_connection(network).name)
    _approve(network, name, "Rejected")
    with pytest.raises(HttpResponseError, match="cannot be taken back"):
        _approve(network, name)
    dashboard.managed_private_endpoints.begin_refresh("rg", "graf").result()
    properties = dashboard.managed_private_endpoints.get("rg", "graf", "mpe").properties
    assert properties and properties.connection_state and properties.connection_state["status"] == "Rejected"


def test_an_endpoint_whose_connection_was_removed_is_disconnected(
    network: NetworkManagementClient, dashboard: DashboardManagementClient, endpoint: str
) -> None:
    name = str(_connection(network).name)
    network.private_link_services.begin_delete_private_endpoint_connection("rg", "pls", name).result()
    network.private_link_services.begin_delete_private_endpoint_connection("rg", "pls", name).result()
    dashboard.managed_private_endpoints.begin_refresh("rg", "graf").result()
    properties = dashboard.managed_private_endpoints.get("rg", "graf", "mpe").properties
    assert (
        properties and properties.connection_state and properties.connection_state["status"] == "Disconnected"
    )


def test_a_foreign_connection_is_nobody_s_business_of_grafana(
    network: NetworkManagementClient, dashboard: DashboardManagementClient, endpoint: str, store: Store
) -> None:
    foreign = {
        "id": f"{SERVICE_ID}/privateEndpointConnections/grafana-graf-mpe2.1",
        "name": "grafana-graf-mpe2.1",
        "privateEndpoint": {
            "id": "/subscriptions/x/resourceGroups/y/providers/Microsoft.Network/privateEndpoints/grafana-graf-mpe2"
        },
        "privateLinkServiceConnectionState": {"status": "Pending", "description": "theirs"},
    }
    private_link.add_connection(store, SERVICE_ID, foreign, actor="somebody")
    _approve(network, "grafana-graf-mpe2.1")
    dashboard.managed_private_endpoints.begin_refresh("rg", "graf").result()
    properties = dashboard.managed_private_endpoints.get("rg", "graf", "mpe").properties
    assert properties and properties.connection_state and properties.connection_state["status"] == "Pending"
    connections = network.private_link_services.list_private_endpoint_connections("rg", "pls")
    assert len(list(connections)) == 2


def test_what_is_not_there_is_not_found(network: NetworkManagementClient, endpoint: str) -> None:
    with pytest.raises(ResourceNotFoundError, match="privateLinkServices/other"):
        network.private_link_services.get("rg", "other")
    with pytest.raises(ResourceNotFoundError):
        _approve(network, "nobody")


def test_all_private_endpoints_of_a_workspace_are_listed(
    dashboard: DashboardManagementClient, endpoint: str
) -> None:
    assert [one.name for one in dashboard.managed_private_endpoints.list("rg", "graf")] == ["mpe"]


def test_a_request_without_api_version_is_refused(
    servers: Servers, credential: TokenCredential, endpoint: str
) -> None:
    token = credential.get_token("https://management.azure.com/.default").token
    answer = httpx.get(f"{servers.arm}{WORKSPACE_ID}", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "MissingApiVersionParameter")


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "ConflictInProcessing"), (403, "AuthorizationFailed"), (429, "Throttled"), (503, "Down")],
)
def test_fault_rules_act_on_the_approval(
    network: NetworkManagementClient, endpoint: str, store: Store, status: int, code: str
) -> None:
    name = str(_connection(network).name)
    store.add_fault(
        Fault(
            method="PUT", path="/privateEndpointConnections/", status=status, code=code, retry_after_seconds=7
        )
    )
    with pytest.raises(HttpResponseError) as error:
        _approve(network, name)
    assert error.value.status_code == status and error.value.error and error.value.error.code == code
    response: Any = error.value.response
    assert response.headers["Retry-After"] == "7"
    assert _status(_connection(network)) == "Pending"
    _approve(network, name)


def test_an_answer_can_be_lost_after_it_took_effect(
    network: NetworkManagementClient, endpoint: str, store: Store
) -> None:
    name = str(_connection(network).name)
    store.add_fault(
        Fault(method="PUT", path="/privateEndpointConnections/", status=500, code="Lost", after=True)
    )
    with pytest.raises(HttpResponseError):
        _approve(network, name)
    assert _status(_connection(network)) == "Approved"
