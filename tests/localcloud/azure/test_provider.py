# SPDX-License-Identifier: Apache-2.0
"""The provider over gRPC, asked what the engine asks. Nothing here needs a cluster."""

import base64
import uuid
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2
from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.azure.known_types import KNOWN
from localcloud.azure.records import CUT_OFF, Fault, Json, Resource
from localcloud.azure.resource_types import resource_type
from localcloud.azure.store import Store
from localcloud.plugin.values import UNKNOWN, from_struct, to_struct
from tests.localcloud.azure.asking import GROUP, SUBSCRIPTION, Engine

RESOURCE_GROUP = "azure-native:resources:ResourceGroup"
NETWORK = "azure-native:network:VirtualNetwork"
SUBNET = "azure-native:network:Subnet"
IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
ROLE = "azure-native:authorization:RoleAssignment"
GRAFANA = "azure-native:dashboard:Grafana"
ENDPOINT = "azure-native:dashboard:ManagedPrivateEndpoint"
POOL = "azure-native:containerservice:AgentPool"
WORKSPACE = "azure-native:monitor:AzureMonitorWorkspace"

GRAFANA_INPUTS: Json = {
    "resourceGroupName": "rg",
    "workspaceName": "graf",
    "sku": {"name": "Standard"},
    "identity": {"type": "SystemAssigned"},
}
NETWORK_INPUTS: Json = {
    "resourceGroupName": "rg",
    "virtualNetworkName": "vnet",
    "location": "westeurope",
    "addressSpace": {"addressPrefixes": ["10.0.0.0/8"]},
}
SERVICE_ID = f"{GROUP}/providers/Microsoft.Network/privateLinkServices/pls"


@pytest.fixture
def service(store: Store, group: Resource) -> Resource:
    """A Private Link Service, as the cloud controller makes them."""
    service = Resource(
        id=SERVICE_ID, token="azure-native:network:PrivateLinkService", outputs={"name": "pls"}
    )
    store.create_resource(service, actor="cloud-controller")
    return service


def _endpoint(**change: object) -> Json:
    return {
        "resourceGroupName": "rg",
        "workspaceName": "graf",
        "managedPrivateEndpointName": "pyroscope",
        "privateLinkResourceId": SERVICE_ID,
        "requestMessage": "from gpuheap",
        "location": "westeurope",
        **change,
    }


def _message(error: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    rpc: Any = error.value
    return str(rpc.details())


# Check


def test_check_refuses_what_the_sdk_does_not_declare(engine: Engine) -> None:
    _, failures = engine.check(GRAFANA, {**GRAFANA_INPUTS, "skuu": 1, "identity": {"type": "Nobody"}})
    assert "no property 'skuu'" in failures["skuu"]
    assert "identity.type must be one of None, SystemAssigned" in failures[""]


def test_check_refuses_a_type_that_the_sdk_does_not_have(engine: Engine) -> None:
    _, failures = engine.check("azure-native:dashboard:Grafanas", {})
    assert "Grafanas" in failures[""]


@pytest.mark.parametrize(
    ("token", "inputs", "property", "rule"),
    [
        (ENDPOINT, _endpoint(managedPrivateEndpointName="a" * 21), "managedPrivateEndpointName", "2 to 20"),
        (
            POOL,
            {"resourceGroupName": "rg", "resourceName": "a", "agentPoolName": "GPU"},
            "agentPoolName",
            "lower-case",
        ),
        (
            POOL,
            {"resourceGroupName": "rg", "resourceName": "a", "agentPoolName": "a" * 13},
            "agentPoolName",
            "1 to 12",
        ),
        (GRAFANA, {**GRAFANA_INPUTS, "workspaceName": "-g"}, "workspaceName", "the first a letter"),
        (
            RESOURCE_GROUP,
            {"resourceGroupName": "rg.", "location": "x"},
            "resourceGroupName",
            "no period at the end",
        ),
    ],
)
def test_check_refuses_a_name_that_azure_would_not_take(
    engine: Engine, token: str, inputs: Json, property: str, rule: str
) -> None:
    _, failures = engine.check(token, {"location": "westeurope", **inputs} if token != POOL else inputs)
    assert list(failures) == [property] and rule in failures[property]
    assert inputs[property] in failures[property]


def test_a_name_is_made_up_once_and_kept(engine: Engine) -> None:
    first, _ = engine.check(NETWORK, {"resourceGroupName": "rg", "location": "x"}, name="net")
    assert first["virtualNetworkName"].startswith("net") and len(first["virtualNetworkName"]) == 11
    second, _ = engine.check(NETWORK, {"resourceGroupName": "rg", "location": "x"}, old=first, name="other")
    assert second == first


def test_a_role_assignment_gets_a_guid(engine: Engine) -> None:
    checked, failures = engine.check(ROLE, {"principalId": "p", "roleDefinitionId": "r", "scope": GROUP})
    assert failures == {}
    uuid.UUID(checked["roleAssignmentName"])


def test_the_location_comes_from_the_resource_group(engine: Engine, group: Resource) -> None:
    checked, _ = engine.check(NETWORK, {"resourceGroupName": "rg", "virtualNetworkName": "vnet"})
    assert checked["location"] == "westeurope"


def test_the_location_is_unknown_while_the_resource_group_is(engine: Engine) -> None:
    checked, failures = engine.check(NETWORK, {"resourceGroupName": UNKNOWN, "virtualNetworkName": "vnet"})
    assert checked["location"] == UNKNOWN and failures == {}


def test_the_provider_s_location_comes_before_that_of_the_group(engine: Engine, group: Resource) -> None:
    engine.provider.Configure(pb.ConfigureRequest(args=to_struct({"location": "northeurope"})))
    checked, _ = engine.check(NETWORK, {"resourceGroupName": "rg", "virtualNetworkName": "vnet"})
    assert checked["location"] == "northeurope"


# Create


def test_a_preview_of_create_makes_nothing_and_knows_only_the_inputs(engine: Engine, store: Store) -> None:
    id, outputs = engine.create(GRAFANA, {**GRAFANA_INPUTS, "location": "westeurope"}, preview=True)
    assert id == "" and store.resources() == []
    assert outputs["identity"] == {
        "type": "SystemAssigned",
        "principalId": UNKNOWN,
        "tenantId": UNKNOWN,
        "userAssignedIdentities": UNKNOWN,
    }
    assert outputs["properties"] == UNKNOWN


def test_create_gives_the_arm_id_and_what_azure_computes(engine: Engine, group: Resource) -> None:
    id, outputs = engine.create(GRAFANA, GRAFANA_INPUTS)
    assert id == f"{GROUP}/providers/Microsoft.Dashboard/grafana/graf"
    assert outputs["properties"]["endpoint"].endswith("/grafana/graf")
    uuid.UUID(outputs["identity"]["principalId"])
    assert outputs["azureApiVersion"] == "2024-10-01"
    assert outputs["type"] == "Microsoft.Dashboard/grafana"
    assert "workspaceName" not in outputs


def test_what_azure_computes_is_declared_by_the_sdk_and_complete(engine: Engine, group: Resource) -> None:
    """Every output that the SDK does not call optional must be there, and no other than those it declares."""
    made = {
        GRAFANA: GRAFANA_INPUTS,
        NETWORK: NETWORK_INPUTS,
        IDENTITY: {"resourceGroupName": "rg", "resourceName": "identity"},
        WORKSPACE: {"resourceGroupName": "rg", "azureMonitorWorkspaceName": "metrics"},
        "azure-native:monitor:DataCollectionEndpoint": {
            "resourceGroupName": "rg",
            "dataCollectionEndpointName": "endpoint",
        },
        "azure-native:monitor:DataCollectionRule": {
            "resourceGroupName": "rg",
            "dataCollectionRuleName": "rule",
        },
        "azure-native:containerregistry:Registry": {
            "resourceGroupName": "rg",
            "registryName": "registry",
            "sku": {"name": "Basic"},
        },
        RESOURCE_GROUP: {"resourceGroupName": "another", "location": "westeurope"},
        SUBNET: {
            "resourceGroupName": "rg",
            "virtualNetworkName": "vnet",
            "subnetName": "s",
            "addressPrefix": "10.0.0.0/24",
        },
        ROLE: {"principalId": "p", "principalType": "User", "roleDefinitionId": "r", "scope": GROUP},
    }
    for token, inputs in made.items():
        _, outputs = engine.create(token, inputs)
        declared = resource_type(token).outputs
        assert set(outputs) <= set(declared), token
        missing = {name for name, one in declared.items() if one.required} - set(outputs)
        assert missing <= {"privateEndpointConnections", "dataEndpointHostNames"}, (token, missing)


def test_a_resource_that_is_there_is_not_created(engine: Engine, store: Store, group: Resource) -> None:
    engine.create(NETWORK, NETWORK_INPUTS)
    with pytest.raises(grpc.RpcError) as error:
        engine.create(NETWORK, NETWORK_INPUTS)
    assert "cannot create already existing resource" in _message(
        error
    ) and "virtualNetworks/vnet" in _message(error)


def test_a_resource_needs_that_in_which_it_lies(engine: Engine, group: Resource) -> None:
    with pytest.raises(grpc.RpcError) as error:
        engine.create(NETWORK, {**NETWORK_INPUTS, "resourceGroupName": "nowhere"})
    assert 'Code="ResourceGroupNotFound"' in _message(error) and "'nowhere'" in _message(error)
    with pytest.raises(grpc.RpcError) as error:
        engine.create(
            SUBNET,
            {
                "resourceGroupName": "rg",
                "virtualNetworkName": "vnet",
                "subnetName": "s",
                "addressPrefix": "10.0.0.0/24",
            },
        )
    assert 'Code="ResourceNotFound"' in _message(error)


def test_a_resource_needs_what_it_refers_to(engine: Engine, group: Resource) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    with pytest.raises(grpc.RpcError) as error:
        engine.create(ENDPOINT, _endpoint())
    assert 'Code="InvalidResourceReference"' in _message(error) and SERVICE_ID in _message(error)


def test_a_type_that_is_not_simulated_is_checked_but_not_made(engine: Engine, group: Resource) -> None:
    token = "azure-native:search:Service"
    inputs = {"resourceGroupName": "rg", "searchServiceName": "a", "hostingMode": "Default"}
    _, failures = engine.check(token, {**inputs, "hostingMode": "Gold"})
    assert "Default, HighDensity" in failures["hostingMode"]
    with pytest.raises(grpc.RpcError) as error:
        engine.create(token, inputs)
    assert "is not simulated" in _message(error)


def test_a_role_is_assigned_once_and_only_to_a_principal_of_a_known_type(
    engine: Engine, group: Resource
) -> None:
    inputs = {
        "principalId": "p",
        "principalType": "ServicePrincipal",
        "roleDefinitionId": "r",
        "scope": GROUP,
    }
    engine.create(ROLE, {**inputs, "roleAssignmentName": str(uuid.UUID(int=1))})
    with pytest.raises(grpc.RpcError) as error:
        engine.create(ROLE, {**inputs, "roleAssignmentName": str(uuid.UUID(int=2))})
    assert 'Code="RoleAssignmentExists"' in _message(error)
    with pytest.raises(grpc.RpcError) as error:
        engine.create(ROLE, {"principalId": "q", "roleDefinitionId": "r", "scope": GROUP})
    assert 'Code="PrincipalNotFound"' in _message(error)


# Diff and update


def test_a_name_that_the_program_gave_means_delete_before_replace(engine: Engine) -> None:
    old = {
        "resourceGroupName": "rg",
        "resourceName": "aks",
        "agentPoolName": "gpu",
        "vmSize": "a",
        "count": 1,
    }
    answer = engine.diff(POOL, old, {**old, "vmSize": "b", "count": 2})
    assert list(answer.replaces) == ["vmSize"] and answer.deleteBeforeReplace
    assert sorted(answer.diffs) == ["count", "vmSize"]


def test_a_made_up_name_lets_the_new_one_come_first(engine: Engine) -> None:
    old = {
        "resourceGroupName": "rg",
        "virtualNetworkName": "v1",
        "location": "a",
        "__createBeforeDelete": True,
    }
    answer = engine.diff(NETWORK, old, {**old, "location": "b"})
    assert list(answer.replaces) == ["location"] and not answer.deleteBeforeReplace


def test_what_stands_in_the_id_replaces(engine: Engine) -> None:
    for name in KNOWN["dashboard:ManagedPrivateEndpoint"].parameters:
        answer = engine.diff(ENDPOINT, _endpoint(), _endpoint(**{name: "other"}))
        assert list(answer.replaces) == [name]


def test_an_update_changes_the_outputs_and_keeps_what_azure_chose(engine: Engine, group: Resource) -> None:
    id, made = engine.create(GRAFANA, GRAFANA_INPUTS)
    checked, _ = engine.check(GRAFANA, {**GRAFANA_INPUTS, "tags": {"a": "b"}})
    changed = engine.update(GRAFANA, id, made, checked)
    assert changed["tags"] == {"a": "b"}
    assert changed["identity"] == made["identity"] and changed["properties"] == made["properties"]
    previewed = engine.update(GRAFANA, id, made, checked, preview=True)
    assert previewed["name"] == "graf" and previewed["properties"] == UNKNOWN


def test_a_private_endpoint_cannot_be_changed_in_place(engine: Engine, service: Resource) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    id, made = engine.create(ENDPOINT, _endpoint())
    with pytest.raises(grpc.RpcError) as error:
        engine.update(ENDPOINT, id, made, _endpoint(requestMessage="another"))
    assert "requestMessage cannot be changed" in _message(error)


# Read


def test_a_refresh_sees_what_was_changed_by_hand(engine: Engine, store: Store, group: Resource) -> None:
    inputs = {**NETWORK_INPUTS, "tags": {"a": "b"}}
    id, made = engine.create(NETWORK, inputs)
    store.change_resource(
        id, lambda old: replace(old, outputs={**old.outputs, "tags": {"a": "c"}}), actor="somebody"
    )
    answer = engine.read(NETWORK, id, outputs=made, inputs=inputs)
    assert from_struct(answer.inputs) == {**inputs, "tags": {"a": "c"}}
    assert from_struct(answer.properties)["tags"] == {"a": "c"}


def test_a_refresh_sees_that_something_is_gone(engine: Engine, store: Store, group: Resource) -> None:
    id, made = engine.create(NETWORK, NETWORK_INPUTS)
    store.delete_resource(id, actor="somebody")
    assert engine.read(NETWORK, id, outputs=made, inputs=NETWORK_INPUTS).id == ""


def test_an_import_finds_the_inputs(engine: Engine, group: Resource) -> None:
    id, _ = engine.create(NETWORK, {**NETWORK_INPUTS, "tags": {"a": "b"}})
    answer = engine.read(NETWORK, id)
    assert answer.id == id
    assert from_struct(answer.inputs).items() >= {**NETWORK_INPUTS, "tags": {"a": "b"}}.items()
    _, failures = engine.check(NETWORK, from_struct(answer.inputs))
    assert failures == {}, "what was imported must be good inputs"


def test_a_network_shows_its_subnets(engine: Engine, group: Resource) -> None:
    id, made = engine.create(NETWORK, NETWORK_INPUTS)
    engine.create(
        SUBNET,
        {
            "resourceGroupName": "rg",
            "virtualNetworkName": "vnet",
            "subnetName": "s",
            "addressPrefix": "10.0.0.0/24",
        },
    )
    answer = engine.read(NETWORK, id, outputs=made, inputs=NETWORK_INPUTS)
    assert [subnet["name"] for subnet in from_struct(answer.properties)["subnets"]] == ["s"]
    assert from_struct(answer.inputs) == NETWORK_INPUTS


# Delete


def test_deleting_twice_is_fine(engine: Engine, store: Store, group: Resource) -> None:
    id, _ = engine.create(NETWORK, NETWORK_INPUTS)
    engine.delete(NETWORK, id)
    engine.delete(NETWORK, id)
    assert store.resource(id) is None


def test_a_resource_group_goes_with_all_that_is_in_it(
    engine: Engine, store: Store, service: Resource
) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    engine.create(ENDPOINT, _endpoint())
    engine.delete(RESOURCE_GROUP, GROUP)
    assert store.resources() == []


def test_a_subnet_that_is_in_use_stays(engine: Engine, store: Store, group: Resource) -> None:
    engine.create(NETWORK, NETWORK_INPUTS)
    inputs = {
        "resourceGroupName": "rg",
        "virtualNetworkName": "vnet",
        "subnetName": "s",
        "addressPrefix": "10.0.0.0/24",
    }
    id, made = engine.create(SUBNET, inputs)
    user = Resource(
        id=SERVICE_ID, token="azure-native:network:PrivateLinkService", outputs={"at": [{"id": id}]}
    )
    store.create_resource(user, actor="test")
    with pytest.raises(grpc.RpcError) as error:
        engine.delete(SUBNET, id)
    assert "InUseSubnetCannotBeDeleted" in _message(error) and SERVICE_ID in _message(error)
    with pytest.raises(grpc.RpcError, match=f"InUseSubnetCannotBeUpdated.*{SERVICE_ID}"):
        engine.update(SUBNET, id, made, {**inputs, "addressPrefix": "10.0.0.0/25"})
    engine.update(SUBNET, id, made, {**inputs, "privateLinkServiceNetworkPolicies": "Disabled"})


# Private endpoints


def test_a_private_endpoint_asks_for_a_connection(engine: Engine, store: Store, service: Resource) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    _, outputs = engine.create(ENDPOINT, _endpoint())
    assert outputs["connectionState"] == {"status": "Pending", "description": "from gpuheap"}
    assert outputs["privateLinkServicePrivateIP"] == ""
    found = store.resource(SERVICE_ID)
    assert found
    (connection,) = found.outputs["privateEndpointConnections"]
    assert connection["privateEndpoint"]["id"].endswith("/grafana-graf-pyroscope")
    assert SUBSCRIPTION not in connection["privateEndpoint"]["id"], (
        "the endpoint is in a subscription of Microsoft"
    )
    assert connection["name"].startswith("grafana-graf-pyroscope.")
    assert connection["privateLinkServiceConnectionState"] == {
        "status": "Pending",
        "description": "from gpuheap",
        "actionsRequired": "None",
    }


def test_a_private_endpoint_that_failed_asks_for_its_connection_when_it_is_tried_again(
    engine: Engine, store: Store, service: Resource
) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    store.add_fault(Fault(method="PUT", path="/pyroscope$", status=409, code="OperationFailed", after=True))
    with pytest.raises(grpc.RpcError):
        engine.create(ENDPOINT, _endpoint())
    (id,) = (resource.id for resource in store.resources(token=ENDPOINT))
    checked, _ = engine.check(ENDPOINT, _endpoint())
    for _ in range(2):  # the second is a change like any other
        engine.update(ENDPOINT, id, {}, checked)
        found = store.resource(SERVICE_ID)
        assert found and len(found.outputs["privateEndpointConnections"]) == 1


def test_deleting_a_private_endpoint_takes_its_connection_with_it(
    engine: Engine, store: Store, service: Resource
) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    id, _ = engine.create(ENDPOINT, _endpoint())
    engine.delete(ENDPOINT, id)
    found = store.resource(SERVICE_ID)
    assert found and found.outputs["privateEndpointConnections"] == []


def test_a_private_link_service_with_connections_is_not_deleted(engine: Engine, service: Resource) -> None:
    engine.create(GRAFANA, GRAFANA_INPUTS)
    engine.create(ENDPOINT, _endpoint())
    with pytest.raises(grpc.RpcError) as error:
        engine.delete("azure-native:network:PrivateLinkService", SERVICE_ID)
    assert "existing private endpoint connections" in _message(error)


def test_private_endpoints_need_the_standard_tier(engine: Engine, service: Resource) -> None:
    engine.create(GRAFANA, {**GRAFANA_INPUTS, "sku": {"name": "Essential"}})
    with pytest.raises(grpc.RpcError) as error:
        engine.create(ENDPOINT, _endpoint())
    assert "sku Standard" in _message(error)


# Functions


def test_the_caller_is_always_the_same(engine: Engine) -> None:
    config = engine.invoke("azure-native:authorization:getClientConfig", {})
    assert config["subscriptionId"] == SUBSCRIPTION
    for name in ("clientId", "objectId", "tenantId"):
        uuid.UUID(config[name])


def test_a_resource_is_looked_up_by_its_names(engine: Engine, group: Resource) -> None:
    id, made = engine.create(GRAFANA, GRAFANA_INPUTS)
    found = engine.invoke(
        "azure-native:dashboard:getGrafana", {"resourceGroupName": "rg", "workspaceName": "graf"}
    )
    assert found == {**made, "id": id}


def test_a_lookup_of_nothing_fails_as_azure_s(engine: Engine, group: Resource) -> None:
    with pytest.raises(grpc.RpcError) as error:
        engine.invoke(
            "azure-native:dashboard:getGrafana", {"resourceGroupName": "rg", "workspaceName": "none"}
        )
    assert 'Status=404 Code="ResourceNotFound"' in _message(error)


def test_a_cluster_s_credentials_are_the_local_kubeconfig(
    engine: Engine, store: Store, group: Resource
) -> None:
    arguments = {"resourceGroupName": "rg", "resourceName": "aks"}
    function = "azure-native:containerservice:listManagedClusterUserCredentials"
    with pytest.raises(grpc.RpcError):
        engine.invoke(function, arguments)
    id = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/aks"
    cluster = Resource(id=id, token="azure-native:containerservice:ManagedCluster", outputs={"name": "aks"})
    store.create_resource(cluster, actor="test")
    (file,) = engine.invoke(function, arguments)["kubeconfigs"]
    assert base64.b64decode(file["value"]) == b"kind: Config\n"


def test_a_function_that_is_not_simulated_says_so(engine: Engine) -> None:
    with pytest.raises(grpc.RpcError) as error:
        engine.invoke("azure-native:storage:listStorageAccountKeys", {})
    assert "listStorageAccountKeys is not simulated" in _message(error)


# Faults


def test_a_conflict_reaches_the_user_and_nothing_is_made(
    engine: Engine, store: Store, group: Resource
) -> None:
    store.add_fault(
        Fault(method="PUT", path="/grafana/graf$", status=409, code="ConflictInProcessing", message="busy")
    )
    with pytest.raises(grpc.RpcError) as error:
        engine.create(GRAFANA, GRAFANA_INPUTS)
    assert _message(error) == 'Status=409 Code="ConflictInProcessing" Message="busy"'
    assert len(store.resources()) == 1
    engine.create(GRAFANA, GRAFANA_INPUTS)


@pytest.mark.parametrize(
    ("status", "code"), [(429, "TooManyRequests"), (503, "Down"), (409, "AnotherOperationInProgress")]
)
def test_what_azure_native_repeats_by_itself_is_seen_only_from_the_fourth_time(
    engine: Engine, store: Store, group: Resource, status: int, code: str
) -> None:
    store.add_fault(Fault(method="PUT", path="/grafana/graf$", status=status, code=code, times=3))
    id, _ = engine.create(GRAFANA, GRAFANA_INPUTS)
    store.add_fault(Fault(method="DELETE", path="/grafana/graf$", status=status, code=code, times=4))
    with pytest.raises(grpc.RpcError) as error:
        engine.delete(GRAFANA, id)
    assert code in _message(error)
    assert store.faults() == []


def test_an_operation_that_ends_badly_leaves_the_resource_to_the_next_run(
    engine: Engine, store: Store, group: Resource
) -> None:
    store.add_fault(
        Fault(method="PUT", path="/accounts/m", status=500, code="Quota", message="none left", after=True)
    )
    inputs = {"resourceGroupName": "rg", "azureMonitorWorkspaceName": "mmmm"}
    with pytest.raises(grpc.RpcError) as error:
        engine.create(WORKSPACE, inputs)
    rpc: Any = error.value
    (packed,) = [value for key, value in rpc.trailing_metadata() if key == "grpc-status-details-bin"]
    detail = pb.ErrorResourceInitFailed()
    status_pb2.Status.FromString(packed).details[0].Unpack(detail)
    assert detail.id == f"{GROUP}/providers/Microsoft.Monitor/accounts/mmmm"
    assert "none left" in detail.reasons[0]
    assert from_struct(detail.properties)["provisioningState"] == "Failed"
    checked, _ = engine.check(WORKSPACE, inputs)
    assert engine.update(WORKSPACE, detail.id, {}, checked)["provisioningState"] == "Succeeded"


def test_a_creation_whose_answer_is_cut_off_is_asked_for_again_and_made_once(
    engine: Engine, store: Store, group: Resource
) -> None:
    store.add_fault(Fault(method="PUT", path="/grafana/graf$", status=CUT_OFF, code="", after=True, times=3))
    id, outputs = engine.create(GRAFANA, GRAFANA_INPUTS)
    assert outputs["name"] == "graf"
    verbs = [event.verb for event in store.events() if event.id == id]
    assert verbs == ["create", "update", "update", "update"]


def test_a_creation_that_is_never_answered_may_have_been_made(
    engine: Engine, store: Store, group: Resource
) -> None:
    store.add_fault(Fault(method="PUT", path="/grafana/graf$", status=CUT_OFF, code="", after=True, times=4))
    with pytest.raises(grpc.RpcError) as lost:
        engine.create(GRAFANA, GRAFANA_INPUTS)
    assert "unexpected EOF" in _message(lost)
    with pytest.raises(grpc.RpcError) as again:
        engine.create(GRAFANA, GRAFANA_INPUTS)
    assert "cannot create already existing resource" in _message(again)


def test_an_answer_that_is_lost_while_deleting_is_mended_by_deleting_again(
    engine: Engine, store: Store, group: Resource
) -> None:
    id, _ = engine.create(NETWORK, NETWORK_INPUTS)
    store.add_fault(Fault(method="DELETE", path="/virtualNetworks/", status=500, code="Lost", after=True))
    with pytest.raises(grpc.RpcError):
        engine.delete(NETWORK, id)
    engine.delete(NETWORK, id)
    assert store.resource(id) is None


def test_a_read_can_fail(engine: Engine, store: Store, group: Resource) -> None:
    store.add_fault(Fault(method="GET", path="/resourceGroups/rg$", status=403, code="AuthorizationFailed"))
    with pytest.raises(grpc.RpcError) as error:
        engine.read(RESOURCE_GROUP, GROUP)
    assert "AuthorizationFailed" in _message(error)
