# SPDX-License-Identifier: Apache-2.0
"""Grafana's HTTP API, with the rights that Azure's roles give."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from azure.core.credentials import TokenCredential
from grafana_client.api import GrafanaApi
from grafana_client.client import GrafanaClientError, TokenAuth

from localcloud.azure import private_link
from localcloud.azure.functions import DEPLOYER_OBJECT
from localcloud.azure.grafana import ADMIN, VIEWER
from localcloud.azure.grafana_health import MONITORING_DATA_READER
from localcloud.azure.records import Fault, Json, Resource
from localcloud.azure.server import Servers
from localcloud.azure.store import Store
from tests.localcloud.azure.asking import GROUP, SUBSCRIPTION, Engine

WORKSPACE_ID = f"{GROUP}/providers/Microsoft.Dashboard/grafana/graf"
SOURCE: Json = {
    "uid": "local-pyroscope",
    "name": "local-pyroscope",
    "type": "grafana-pyroscope-datasource",
    "access": "proxy",
    "url": "http://pyroscope.internal:4040",
    "jsonData": {"keepCookies": ["pyroscope_git_session"]},
}
Call = Callable[..., httpx.Response]


@pytest.fixture
def workspace(engine: Engine, group: Resource) -> Json:
    inputs = {
        "resourceGroupName": "rg",
        "workspaceName": "graf",
        "sku": {"name": "Standard"},
        "identity": {"type": "SystemAssigned"},
    }
    return engine.create("azure-native:dashboard:Grafana", inputs)[1]


def assign(engine: Engine, role: str, scope: str, principal: str = DEPLOYER_OBJECT) -> None:
    definition = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/{role}"
    inputs = {
        "roleAssignmentName": str(uuid.uuid4()),
        "principalId": principal,
        "principalType": "ServicePrincipal",
        "roleDefinitionId": definition,
        "scope": scope,
    }
    engine.create("azure-native:authorization:RoleAssignment", inputs)


@pytest.fixture
def call(servers: Servers, credential: TokenCredential, workspace: Json) -> Call:
    token = credential.get_token("ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default").token

    def call(method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{servers.arm}/grafana/graf/api{path}", json=body, headers=headers)

    return call


@pytest.fixture
def admin(engine: Engine, call: Call) -> Call:
    """Calls of somebody who is Grafana Admin."""
    assign(engine, ADMIN, WORKSPACE_ID)
    return call


def test_health_needs_no_token(servers: Servers, workspace: Json) -> None:
    answer = httpx.get(f"{servers.arm}/grafana/graf/api/health")
    assert answer.status_code == 200 and answer.json()["database"] == "ok"
    assert answer.json()["version"].startswith("11.")


def test_without_a_role_nothing_is_allowed(call: Call, engine: Engine) -> None:
    assert call("GET", "/datasources").status_code == 403
    assign(engine, VIEWER, WORKSPACE_ID)
    assert call("GET", "/datasources").status_code == 403
    assert call("GET", "/dashboards/uid/none").status_code == 404, "a viewer may read dashboards"
    assert call("POST", "/dashboards/db", {"dashboard": {"title": "t"}}).status_code == 403


def test_a_role_on_the_resource_group_counts_and_one_elsewhere_does_not(
    call: Call, engine: Engine, store: Store
) -> None:
    neighbour = Resource(id=f"{WORKSPACE_ID}2", token="azure-native:dashboard:Grafana", outputs={})
    store.create_resource(neighbour, actor="test")
    assign(engine, ADMIN, neighbour.id)
    assert call("GET", "/datasources").status_code == 403
    assign(engine, ADMIN, GROUP)
    assert call("GET", "/datasources").status_code == 200


def test_a_token_for_something_else_is_not_taken(
    servers: Servers, credential: TokenCredential, workspace: Json
) -> None:
    token = credential.get_token("https://management.azure.com/.default").token
    url = f"{servers.arm}/grafana/graf/api/datasources"
    assert httpx.get(url, headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert httpx.get(url).status_code == 401


def test_a_maintained_client_manages_a_data_source(
    servers: Servers, credential: TokenCredential, admin: Call, certificate: tuple[Any, Any]
) -> None:
    token = credential.get_token("ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default").token
    port = int(servers.arm.rpartition(":")[2])
    client: Any = GrafanaApi(
        TokenAuth(token),
        host="127.0.0.1",
        port=port,
        protocol="https",
        url_path_prefix="grafana/graf/",
        verify=str(certificate[0]),
    )
    made = client.datasource.create_datasource(SOURCE)
    assert made["message"] == "Datasource added"
    shown = client.datasource.get_datasource_by_uid("local-pyroscope")
    assert shown["jsonData"] == SOURCE["jsonData"] and shown["version"] == 1 and shown["readOnly"] is False
    client.datasource.update_datasource_by_uid("local-pyroscope", {**SOURCE, "url": "http://other:4040"})
    assert client.datasource.get_datasource_by_uid("local-pyroscope")["url"] == "http://other:4040"
    client.datasource.delete_datasource_by_uid("local-pyroscope")
    with pytest.raises(GrafanaClientError, match="Data source not found"):
        client.datasource.get_datasource_by_uid("local-pyroscope")


def test_names_and_uids_of_data_sources_are_unique(admin: Call) -> None:
    assert admin("POST", "/datasources", SOURCE).status_code == 200
    same_name = admin("POST", "/datasources", {**SOURCE, "uid": "other"})
    assert (same_name.status_code, same_name.json()["message"]) == (
        409,
        "data source with the same name already exists",
    )
    same_uid = admin("POST", "/datasources", {**SOURCE, "name": "other"})
    assert (same_uid.status_code, same_uid.json()["message"]) == (
        409,
        "data source with the same uid already exists",
    )
    admin("POST", "/datasources", {**SOURCE, "uid": "b", "name": "b"})
    renamed = admin("PUT", "/datasources/uid/b", {**SOURCE, "uid": "b"})
    assert renamed.status_code == 409


def test_secrets_of_a_data_source_are_not_shown(admin: Call, store: Store) -> None:
    admin("POST", "/datasources", {**SOURCE, "secureJsonData": {"basicAuthPassword": "hunter2"}})
    shown = admin("GET", "/datasources/uid/local-pyroscope")
    assert shown.json()["secureJsonFields"] == {"basicAuthPassword": True}
    assert "hunter2" not in shown.text


def test_an_old_version_of_a_data_source_is_refused(admin: Call) -> None:
    admin("POST", "/datasources", SOURCE)
    admin("PUT", "/datasources/uid/local-pyroscope", SOURCE)
    assert admin("PUT", "/datasources/uid/local-pyroscope", {**SOURCE, "version": 1}).status_code == 409
    assert admin("PUT", "/datasources/uid/local-pyroscope", {**SOURCE, "version": 2}).status_code == 200


def test_a_provisioned_data_source_cannot_be_changed(admin: Call) -> None:
    admin("POST", "/datasources", {**SOURCE, "readOnly": True})
    assert admin("PUT", "/datasources/uid/local-pyroscope", SOURCE).status_code == 403
    assert admin("DELETE", "/datasources/uid/local-pyroscope").status_code == 403


@pytest.mark.parametrize("lacking", ["name", "type"])
def test_a_data_source_that_is_incomplete_is_refused(admin: Call, lacking: str) -> None:
    body = {key: value for key, value in SOURCE.items() if key != lacking}
    assert admin("POST", "/datasources", body).status_code == 400


def test_a_dashboard_is_saved_shown_and_deleted(admin: Call, store: Store) -> None:
    dashboard = {"uid": "gpu", "id": None, "title": "GPU memory", "panels": [{"id": 1}]}
    saved = admin("POST", "/dashboards/db", {"dashboard": dashboard, "overwrite": True}).json()
    assert saved == {
        "folderUid": "",
        "id": 1,
        "slug": "gpu-memory",
        "status": "success",
        "uid": "gpu",
        "url": "/grafana/graf/d/gpu/gpu-memory",
        "version": 1,
    }
    shown = admin("GET", "/dashboards/uid/gpu").json()
    assert shown["dashboard"]["panels"] == [{"id": 1}] and shown["meta"]["version"] == 1
    assert admin("DELETE", "/dashboards/uid/gpu").status_code == 200
    assert admin("GET", "/dashboards/uid/gpu").status_code == 404
    assert admin("DELETE", "/dashboards/uid/gpu").status_code == 404
    assert [event.verb for event in store.events() if event.id == f"{WORKSPACE_ID}/dashboards/gpu"] == [
        "create",
        "delete",
    ]


def test_a_dashboard_that_somebody_else_changed_is_not_overwritten_by_chance(admin: Call) -> None:
    dashboard = {"uid": "gpu", "title": "t"}
    admin("POST", "/dashboards/db", {"dashboard": dashboard})
    again = admin("POST", "/dashboards/db", {"dashboard": dashboard})
    assert again.status_code == 412 and again.json()["status"] == "version-mismatch"
    current = admin("POST", "/dashboards/db", {"dashboard": {**dashboard, "version": 1}})
    assert current.status_code == 200 and current.json()["version"] == 2
    forced = admin("POST", "/dashboards/db", {"dashboard": dashboard, "overwrite": True})
    assert forced.status_code == 200 and forced.json()["version"] == 3


@pytest.mark.parametrize(
    ("dashboard", "message"),
    [
        ({"title": " "}, "title cannot be empty"),
        ({"title": "t", "uid": "a" * 41}, "uid too long"),
        ({"title": "t", "uid": "a/b"}, "illegal characters"),
    ],
)
def test_a_bad_dashboard_is_refused(admin: Call, dashboard: Json, message: str) -> None:
    answer = admin("POST", "/dashboards/db", {"dashboard": dashboard})
    assert answer.status_code == 400 and message in answer.json()["message"]


def test_dashboards_lie_in_folders_that_exist_and_go_with_them(admin: Call) -> None:
    body = {"dashboard": {"uid": "gpu", "title": "t"}, "folderUid": "f"}
    assert admin("POST", "/dashboards/db", body).status_code == 400
    assert admin("POST", "/folders", {"uid": "f", "title": "GPU"}).status_code == 200
    assert admin("POST", "/folders", {"uid": "f", "title": "GPU"}).status_code == 412
    assert admin("POST", "/dashboards/db", body).status_code == 200
    assert admin("DELETE", "/folders/f").status_code == 200
    assert admin("GET", "/dashboards/uid/gpu").status_code == 404


def test_what_a_workspace_holds_goes_with_it(admin: Call, engine: Engine, store: Store) -> None:
    admin("POST", "/datasources", SOURCE)
    engine.delete("azure-native:dashboard:Grafana", WORKSPACE_ID)
    assert store.grafana_objects(WORKSPACE_ID, "datasources") == []
    assert admin("GET", "/datasources").status_code == 404


def test_a_fault_rule_answers_in_grafana_s_form(admin: Call, store: Store) -> None:
    store.add_fault(
        Fault(method="POST", path="/api/datasources$", status=503, code="Down", retry_after_seconds=3)
    )
    answer = admin("POST", "/datasources", SOURCE)
    assert answer.status_code == 503 and "message" in answer.json() and answer.headers["Retry-After"] == "3"
    assert admin("POST", "/datasources", SOURCE).status_code == 200


def test_pyroscope_is_healthy_when_its_private_endpoint_is_approved(
    admin: Call, engine: Engine, store: Store
) -> None:
    admin("POST", "/datasources", SOURCE)
    health = "/datasources/uid/local-pyroscope/health"
    assert "no such host" in admin("GET", health).json()["message"]
    service_id = f"{GROUP}/providers/Microsoft.Network/privateLinkServices/pls"
    service = Resource(id=service_id, token="azure-native:network:PrivateLinkService", outputs={})
    store.create_resource(service, actor="test")
    endpoint = {
        "resourceGroupName": "rg",
        "workspaceName": "graf",
        "managedPrivateEndpointName": "mpe",
        "privateLinkResourceId": service_id,
        "privateLinkServiceUrl": "pyroscope.internal",
    }
    engine.create("azure-native:dashboard:ManagedPrivateEndpoint", endpoint)
    assert "Pending" in admin("GET", health).json()["message"]
    found = store.resource(service_id)
    assert found
    (connection,) = found.outputs["privateEndpointConnections"]
    private_link.set_state(store, connection["id"], {"status": "Approved"}, actor="test")
    private_link.refresh(store, WORKSPACE_ID, actor="test")
    assert admin("GET", health).json()["status"] == "OK"


def test_prometheus_is_healthy_when_the_workspace_may_read_the_metrics(
    admin: Call, engine: Engine, workspace: Json
) -> None:
    id, metrics = engine.create(
        "azure-native:monitor:AzureMonitorWorkspace",
        {"resourceGroupName": "rg", "azureMonitorWorkspaceName": "metrics"},
    )
    source: Json = {
        "uid": "prometheus",
        "name": "prometheus",
        "type": "prometheus",
        "url": metrics["metrics"]["prometheusQueryEndpoint"],
    }
    admin("POST", "/datasources", source)
    health = "/datasources/uid/prometheus/health"
    assert "managed identity" in admin("GET", health).json()["message"]
    admin(
        "PUT",
        "/datasources/uid/prometheus",
        {**source, "jsonData": {"azureCredentials": {"authType": "msi"}}},
    )
    assert "Monitoring Data Reader" in admin("GET", health).json()["message"]
    assign(engine, MONITORING_DATA_READER, id, workspace["identity"]["principalId"])
    assert admin("GET", health).status_code == 200
