# SPDX-License-Identifier: Apache-2.0
import pytest
from azure.mgmt.dashboard.models import ManagedGrafana
from azure.mgmt.network.models import PrivateLinkService, VirtualNetwork

from localcloud.azure import shapes
from localcloud.azure.known_types import KNOWN
from localcloud.azure.records import Json, Resource
from localcloud.azure.resource_types import resource_type
from localcloud.plugin.values import UNKNOWN

GROUP = "/subscriptions/s/resourceGroups/rg"
GRAFANA = resource_type("azure-native:dashboard:Grafana")


def test_a_preview_knows_the_inputs_and_nothing_else() -> None:
    inputs = {
        "workspaceName": "g",
        "location": "westeurope",
        "properties": {"apiKey": "Disabled"},
        "tags": {"a": "b"},
    }
    seen = shapes.previewed(inputs, GRAFANA.outputs)
    assert seen["location"] == "westeurope" and seen["tags"] == {"a": "b"}
    assert seen["properties"]["apiKey"] == "Disabled"
    assert (
        seen["properties"]["endpoint"] == UNKNOWN and seen["name"] == UNKNOWN and seen["identity"] == UNKNOWN
    )
    assert "workspaceName" not in seen, "what stands only in the id is no output"


def test_the_preview_of_an_update_also_knows_what_never_changes() -> None:
    seen = shapes.previewed_update(
        {"workspaceName": "g"}, {"name": "g", "location": "westeurope", "type": "t"}, GRAFANA.outputs
    )
    assert (seen["name"], seen["location"], seen["type"]) == ("g", "westeurope", UNKNOWN)


POOL = resource_type("azure-native:containerservice:AgentPool").inputs


def test_a_refresh_takes_over_what_was_changed_by_hand() -> None:
    inputs = {"resourceName": "aks", "count": 1, "nodeLabels": {"a": "1"}}
    old = {"count": 1, "nodeLabels": {"a": "1"}, "provisioningState": "Succeeded"}
    new = {"count": 5, "nodeLabels": {"a": "1", "b": "2"}, "provisioningState": "Updating"}
    assert shapes.refreshed(inputs, old, new, POOL) == {
        "resourceName": "aks",
        "count": 5,
        "nodeLabels": {"a": "1", "b": "2"},
    }


def test_a_refresh_leaves_azure_s_defaults_alone() -> None:
    inputs = {"resourceName": "aks", "count": 1}
    shown = {"count": 1, "osSKU": "Ubuntu"}
    assert shapes.refreshed(inputs, shown, shown, POOL) == inputs


def test_a_refresh_drops_what_was_removed_by_hand() -> None:
    inputs = {"resourceName": "aks", "nodeTaints": ["a=b:NoSchedule"]}
    assert shapes.refreshed(inputs, {"nodeTaints": ["a=b:NoSchedule"]}, {}, POOL) == {"resourceName": "aks"}


def test_a_refresh_does_not_give_a_network_the_subnets_of_other_resources() -> None:
    declared = resource_type("azure-native:network:VirtualNetwork").inputs
    inputs = {"virtualNetworkName": "v", "addressSpace": {"addressPrefixes": ["10.0.0.0/8"]}}
    shown = {"addressSpace": inputs["addressSpace"], "subnets": list[Json]()}
    assert shapes.refreshed(inputs, shown, {**shown, "subnets": [{"name": "s"}]}, declared) == inputs


def test_an_import_takes_names_from_the_id_and_the_rest_from_what_is_shown() -> None:
    known = KNOWN["containerservice:AgentPool"]
    id = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/aks/agentPools/gpu"
    shown = {"count": 2, "mode": "User", "provisioningState": "Succeeded", "name": "gpu"}
    assert shapes.imported(id, known, shown, POOL) == {
        "resourceGroupName": "rg",
        "resourceName": "aks",
        "agentPoolName": "gpu",
        "count": 2,
        "mode": "User",
    }


def test_resource_manager_s_form_is_read_by_azure_s_own_models() -> None:
    network = Resource(
        id=f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v",
        token="azure-native:network:VirtualNetwork",
        outputs={
            "location": "westeurope",
            "tags": {"a": "b"},
            "azureApiVersion": "2024-05-01",
            "addressSpace": {"addressPrefixes": ["10.0.0.0/8"]},
            "subnets": [
                {
                    "id": f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
                    "name": "s",
                    "addressPrefix": "10.0.0.0/24",
                }
            ],
        },
    )
    read = VirtualNetwork(shapes.arm_body(network))
    assert read.location == "westeurope" and read.tags == {"a": "b"}
    assert read.address_space and read.address_space.address_prefixes == ["10.0.0.0/8"]
    assert read.subnets and read.subnets[0].name == "s" and read.subnets[0].address_prefix == "10.0.0.0/24"


def test_a_type_whose_properties_the_sdk_does_not_flatten_keeps_them() -> None:
    workspace = Resource(
        id=f"{GROUP}/providers/Microsoft.Dashboard/grafana/g",
        token="azure-native:dashboard:Grafana",
        outputs={"sku": {"name": "Standard"}, "properties": {"endpoint": "https://g"}},
    )
    read = ManagedGrafana(shapes.arm_body(workspace))
    assert read.properties and read.properties.endpoint == "https://g"
    assert read.sku and read.sku.name == "Standard"


def test_the_frontend_of_a_private_link_service_stays_a_reference() -> None:
    frontend = f"{GROUP}/providers/Microsoft.Network/loadBalancers/l/frontendIPConfigurations/f"
    service = Resource(
        id=f"{GROUP}/providers/Microsoft.Network/privateLinkServices/p",
        token="azure-native:network:PrivateLinkService",
        outputs={"loadBalancerFrontendIpConfigurations": [{"id": frontend}]},
    )
    read = PrivateLinkService(shapes.arm_body(service))
    configurations = read.load_balancer_frontend_ip_configurations
    assert configurations and configurations[0].id == frontend


@pytest.mark.parametrize("path", sorted(KNOWN))
def test_the_id_of_every_type_can_be_made_and_read_again(path: str) -> None:
    known = KNOWN[path]
    inputs = {name: f"x{number}" for number, name in enumerate(known.parameters)}
    scopes = {"scope", "resourceUri"} & set(inputs)
    inputs |= dict.fromkeys(scopes, f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v")
    assert known.parameters_of(known.id_of(inputs, "s")) == inputs
    assert known.name in known.parameters
    assert set(known.parameters) <= set(resource_type(f"azure-native:{path}").inputs)
