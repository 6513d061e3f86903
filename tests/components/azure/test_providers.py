# SPDX-License-Identifier: Apache-2.0
"""The dynamic providers in the process in which the engine runs them, asked in the engine's own words."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi.dynamic.dynamic import PROVIDER_KEY, ResourceProvider, serialize_provider
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from components.azure import provider_state, published
from components.azure.leftover import PrivateLinkServiceRemovalProvider
from components.azure.more_content import GrafanaFolderProvider, PublishedDashboardProvider
from components.azure.providers import (
    GrafanaDashboardProvider,
    GrafanaDataSourceProvider,
    PrivateEndpointApprovalProvider,
)
from localcloud.azure import private_link
from localcloud.azure.records import Resource
from localcloud.azure.server import Servers
from localcloud.azure.store import Store
from tests.components.azure.conftest import ENDPOINT_ID, MESSAGE, SERVICE_ID, WORKSPACE_ID, grant

CHECKOUT = Path(__file__).resolve().parents[3]
SOME, NONE = pb.DiffResponse.DIFF_SOME, pb.DiffResponse.DIFF_NONE
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plugin:
    """The process `python -m pulumi.dynamic`."""

    stub: provider_pb2_grpc.ResourceProviderStub

    def create(self, provider: ResourceProvider, inputs: Values) -> tuple[str, Values]:
        made = self.stub.Create(pb.CreateRequest(properties=_with(provider, inputs)))
        return made.id, _values(made.properties)

    def read(self, id: str, state: Values) -> tuple[str, Values]:
        found = self.stub.Read(pb.ReadRequest(id=id, properties=_struct(state)))
        return found.id, _values(found.properties)

    def diff(self, provider: ResourceProvider, id: str, state: Values, inputs: Values) -> pb.DiffResponse:
        request = pb.DiffRequest(id=id, olds=_struct(state), news=_with(provider, inputs))
        answer: pb.DiffResponse = self.stub.Diff(request)
        return answer

    def update(self, provider: ResourceProvider, id: str, state: Values, inputs: Values) -> Values:
        request = pb.UpdateRequest(id=id, olds=_struct(state), news=_with(provider, inputs))
        return _values(self.stub.Update(request).properties)

    def delete(self, id: str, state: Values) -> None:
        self.stub.Delete(pb.DeleteRequest(id=id, properties=_struct(state)))


@pytest.fixture(scope="module")
def plugin(azure: tuple[Store, Servers]) -> Iterator[Plugin]:
    command = [sys.executable, "-u", "-m", "pulumi.dynamic", "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Plugin(provider_pb2_grpc.ResourceProviderStub(channel))
        process.kill()


@pytest.fixture
def source(workspace: str, store: Store) -> Values:
    """The inputs of a data source in a workspace that may be written."""
    grant(store)
    definition = {
        "name": "profiles",
        "type": "grafana-pyroscope-datasource",
        "access": "proxy",
        "url": "http://p:4040",
    }
    return {"endpoint": workspace, "uid": "profiles", "definition": json.dumps(definition, sort_keys=True)}


@pytest.fixture
def dashboard(workspace: str, store: Store) -> Values:
    grant(store)
    return {
        "endpoint": workspace,
        "uid": "memory",
        "definition": json.dumps({"title": "GPU memory", "panels": []}),
    }


@pytest.fixture
def approval(workspace: str, store: Store) -> Values:
    """The inputs of an approval whose connection is pending."""
    endpoint = Resource(
        id=ENDPOINT_ID,
        token="azure-native:dashboard:ManagedPrivateEndpoint",
        inputs={"privateLinkResourceId": SERVICE_ID, "requestMessage": MESSAGE, "location": "westeurope"},
        outputs={"name": "pyroscope", "connectionState": {"status": "Pending"}},
    )
    store.create_resource(endpoint, actor="test")
    private_link.request(store, endpoint, actor="test")
    return {
        "managedPrivateEndpointId": ENDPOINT_ID,
        "privateLinkServiceId": SERVICE_ID,
        "requestMessage": MESSAGE,
    }


@pytest.mark.parametrize(
    "provider", [PrivateEndpointApprovalProvider(), GrafanaDataSourceProvider(), GrafanaDashboardProvider()]
)
def test_state_holds_the_name_of_the_provider_and_nothing_of_it(provider: ResourceProvider) -> None:
    pickled = serialize_provider(provider)
    assert pickled == serialize_provider(type(provider)()), "two runs would differ"
    assert len(pickled) < 150, "pickled by value: a change of the code would be a change of every stack"
    assert provider.serialize_as_secret_always is False


def test_an_approval_is_made_found_again_and_left_alone(plugin: Plugin, approval: Values) -> None:
    provider = PrivateEndpointApprovalProvider()
    id, state = plugin.create(provider, approval)
    assert (id, state["status"]) == (ENDPOINT_ID, "Approved")
    assert state["privateIp"].startswith("10.")
    assert plugin.diff(provider, id, state, approval).changes == NONE
    assert plugin.read(id, state) == (id, state), "a refresh finds no drift"
    plugin.delete(id, state)


def test_a_connection_that_was_lost_is_drift(plugin: Plugin, approval: Values, store: Store) -> None:
    provider = PrivateEndpointApprovalProvider()
    id, state = plugin.create(provider, approval)
    service = store.resource(SERVICE_ID)
    assert service is not None
    private_link.remove_connection(
        store, service.outputs["privateEndpointConnections"][0]["id"], actor="test"
    )
    private_link.refresh(store, WORKSPACE_ID, actor="test")
    _, drifted = plugin.read(id, state)
    assert drifted["status"] == "Disconnected"
    assert plugin.diff(provider, id, drifted, approval).changes == SOME


def test_an_approval_whose_endpoint_is_gone_is_gone(plugin: Plugin, approval: Values, store: Store) -> None:
    id, state = plugin.create(PrivateEndpointApprovalProvider(), approval)
    store.delete_resource(ENDPOINT_ID, actor="test")
    assert plugin.read(id, state)[0] == ""


def test_an_endpoint_that_is_not_known_yet_replaces_the_approval(plugin: Plugin, approval: Values) -> None:
    provider = PrivateEndpointApprovalProvider()
    state = {**approval, "status": "Approved", "privateIp": "", PROVIDER_KEY: serialize_provider(provider)}
    unknown = {**approval, "managedPrivateEndpointId": UNKNOWN}
    answer = plugin.diff(provider, ENDPOINT_ID, state, unknown)
    assert list(answer.replaces) == ["managedPrivateEndpointId"]


def test_a_private_link_service_that_nobody_else_removes_goes_with_its_connections(
    plugin: Plugin, approval: Values, store: Store
) -> None:
    provider, inputs = PrivateLinkServiceRemovalProvider(), {"privateLinkServiceId": SERVICE_ID}
    service = store.resource(SERVICE_ID)
    assert service and service.outputs["privateEndpointConnections"], "Azure refuses to remove such a one"
    id, state = plugin.create(provider, inputs)
    assert plugin.diff(provider, id, state, inputs).changes == NONE
    assert list(plugin.diff(provider, id, state, {"privateLinkServiceId": f"{SERVICE_ID}2"}).replaces) == [
        "privateLinkServiceId"
    ]
    for _ in range(2):
        plugin.delete(id, state)
        assert store.resource(SERVICE_ID) is None


def test_a_data_source_lives_from_creation_to_deletion(plugin: Plugin, source: Values, store: Store) -> None:
    provider = GrafanaDataSourceProvider()
    id, state = plugin.create(provider, source)
    assert plugin.diff(provider, id, state, source).changes == NONE
    assert plugin.read(id, state) == (id, state)
    changed = {**source, "definition": source["definition"].replace("http://p:4040", "http://q:4040")}
    answer = plugin.diff(provider, id, state, changed)
    assert (answer.changes, list(answer.replaces)) == (SOME, [])
    state = plugin.update(provider, id, state, changed)
    (kept,) = store.grafana_objects(WORKSPACE_ID, "datasources")
    assert kept.body["url"] == "http://q:4040"
    plugin.delete(id, state)
    plugin.delete(id, state)
    assert not store.grafana_objects(WORKSPACE_ID, "datasources")


def test_a_data_source_changed_by_hand_is_drift(plugin: Plugin, source: Values, store: Store) -> None:
    provider = GrafanaDataSourceProvider()
    id, state = plugin.create(provider, source)
    by_hand = {**source, "definition": source["definition"].replace("http://p:4040", "http://hand:4040")}
    plugin.update(provider, id, state, by_hand)
    _, drifted = plugin.read(id, state)
    assert "http://hand:4040" in drifted["definition"]
    assert plugin.diff(provider, id, drifted, source).changes == SOME


def test_a_data_source_in_another_workspace_is_another_one(plugin: Plugin, source: Values) -> None:
    provider = GrafanaDataSourceProvider()
    id, state = plugin.create(provider, source)
    elsewhere = {**source, "endpoint": "https://elsewhere.example"}
    assert list(plugin.diff(provider, id, state, elsewhere).replaces) == ["endpoint"]


@pytest.mark.parametrize("lost", ["role", "endpoint"])
def test_what_cannot_be_looked_at_is_taken_to_be_as_it_was_and_a_refresh_says_so(
    lost: str,
    source: Values,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process: nobody waits for as long as a refresh does."""
    monkeypatch.setattr(provider_state, "LOOK_SECONDS", 0.0)
    provider = GrafanaDataSourceProvider()
    provider.create(source)
    if lost == "role":
        (role,) = store.resources(token="azure-native:authorization:RoleAssignment")
        store.delete_resource(role.id, actor="somebody")
    else:
        store.change_resource(WORKSPACE_ID, in_private, actor="somebody")
    found = provider.read("profiles", source)
    assert (found.id, found.outs) == ("profiles", source)
    printed = capfd.readouterr().err
    assert "profiles" in printed and "was not looked at" in printed and "403" in printed


def in_private(workspace: Resource) -> Resource:
    properties = {**workspace.outputs["properties"], "publicNetworkAccess": "Disabled"}
    return replace(workspace, outputs={**workspace.outputs, "properties": properties})


def test_what_is_in_a_workspace_goes_with_its_name(source: Values, servers: Servers) -> None:
    left = {**source, "endpoint": "https://gone.invalid"}  # a name that never is, RFC 2606
    assert GrafanaDataSourceProvider().read("profiles", left).id == ""


def test_a_dashboard_lives_from_creation_to_deletion(plugin: Plugin, dashboard: Values, store: Store) -> None:
    provider = GrafanaDashboardProvider()
    id, state = plugin.create(provider, dashboard)
    read_id, found = plugin.read(id, state)
    assert read_id == id
    assert plugin.diff(provider, id, found, dashboard).changes == NONE
    changed = {**dashboard, "definition": json.dumps({"title": "All memory", "panels": []})}
    state = plugin.update(provider, id, state, changed)
    (kept,) = store.grafana_objects(WORKSPACE_ID, "dashboards")
    assert kept.body["dashboard"]["title"] == "All memory"
    plugin.delete(id, state)
    plugin.delete(id, state)
    assert plugin.read(id, state)[0] == "", "a refresh sees that it is gone"


def _struct(values: Values) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


def _values(struct: Struct) -> Values:
    return MessageToDict(struct)


def _with(provider: ResourceProvider, inputs: Values) -> Struct:
    return _struct({**inputs, PROVIDER_KEY: serialize_provider(provider)})


@pytest.fixture
def folder(workspace: str, store: Store) -> Values:
    grant(store)
    return {
        "endpoint": workspace,
        "uid": "gpus",
        "title": "GPUs",
        "permissions": '{"Editor": 2, "Viewer": 1}',
    }


def _rights(store: Store) -> dict[str, int]:
    kept = store.grafana_object(WORKSPACE_ID, "folder-permissions", "gpus")
    assert kept is not None
    return {item["role"]: item["permission"] for item in kept.body["items"]}


def test_a_folder_lives_from_creation_to_deletion(plugin: Plugin, folder: Values, store: Store) -> None:
    provider = GrafanaFolderProvider()
    id_, state = plugin.create(provider, folder)
    assert _rights(store) == {"Viewer": 1, "Editor": 2}
    assert plugin.read(id_, state) == (id_, state)
    assert plugin.diff(provider, id_, state, folder).changes == NONE
    changed = {**folder, "title": "GPU memory", "permissions": '{"Editor": 2}'}
    assert plugin.diff(provider, id_, state, changed).changes == SOME
    state = plugin.update(provider, id_, state, changed)
    assert _rights(store) == {"Editor": 2}, "who is not named any more may no longer"
    plugin.delete(id_, state)
    plugin.delete(id_, state)  # twice is fine
    assert store.grafana_objects(WORKSPACE_ID, "folders") == []
    assert plugin.read(id_, state)[0] == ""


def test_rights_changed_by_hand_are_drift(plugin: Plugin, folder: Values, store: Store) -> None:
    provider = GrafanaFolderProvider()
    id_, state = plugin.create(provider, folder)
    kept = store.grafana_object(WORKSPACE_ID, "folder-permissions", "gpus")
    assert kept is not None
    opened = replace(kept, body={"items": [{"role": "Viewer", "permission": 4}]})
    store.put_grafana_object(opened, actor="somebody")
    _, found = plugin.read(id_, state)
    assert plugin.diff(provider, id_, found, folder).changes == SOME
    plugin.update(provider, id_, found, folder)
    assert _rights(store) == {"Viewer": 1, "Editor": 2}


def test_a_dashboard_moves_into_another_folder(plugin: Plugin, folder: Values, store: Store) -> None:
    plugin.create(GrafanaFolderProvider(), folder)
    definition = json.dumps({"title": "GPU memory", "panels": []})
    dashboard = {"endpoint": folder["endpoint"], "uid": "memory", "definition": definition}
    provider = GrafanaDashboardProvider()
    id_, state = plugin.create(provider, {**dashboard, "folder": ""})
    inside = {**dashboard, "folder": "gpus"}
    assert plugin.diff(provider, id_, state, inside).changes == SOME
    plugin.update(provider, id_, state, inside)
    (kept,) = store.grafana_objects(WORKSPACE_ID, "dashboards")
    assert kept.body["meta"]["folderUid"] == "gpus"


PUBLISHED: dict[str, Any] = {"uid": "Theirs", "title": "Theirs", "id": None, "panels": [{"type": "text"}]}


def test_a_published_dashboard_lives_from_creation_to_deletion(
    workspace: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what is published is not fetched by tests."""
    grant(store)
    monkeypatch.setattr(published, "dashboard", lambda url, sha256: PUBLISHED)
    provider = PublishedDashboardProvider()
    inputs = {"endpoint": workspace, "url": "https://x/d.json", "sha256": "0" * 64, "folder": ""}
    made = provider.create(inputs)
    state = {**inputs, **(made.outs or {})}
    assert made.id == "Theirs"
    assert not provider.diff("Theirs", state, inputs).changes
    assert provider.diff("Theirs", state, {**inputs, "sha256": "1" * 64}).changes
    (kept,) = store.grafana_objects(WORKSPACE_ID, "dashboards")
    kept.body["dashboard"]["panels"] = []
    store.put_grafana_object(kept, actor="somebody")
    found = provider.read("Theirs", state)
    assert provider.diff("Theirs", found.outs or {}, inputs).changes, "a change by hand is drift"
    provider.delete("Theirs", state)
    assert store.grafana_objects(WORKSPACE_ID, "dashboards") == []
    assert provider.read("Theirs", state).id == ""
