# SPDX-License-Identifier: Apache-2.0
"""The private way to Grafana: what is declared for it, and which combinations are refused."""

from typing import Any

import pytest

from components.grafana_access import label
from tests.components.configs import EXISTING, accepted, only_problem
from tests.components.conftest import EXISTING as EXISTING_STACK
from tests.components.conftest import run_program
from tests.components.recorder import Recording

NETWORKS = "/subscriptions/s/resourceGroups/hub-rg/providers/Microsoft.Network/virtualNetworks"
SUBNET = f"{NETWORKS}/spoke/subnets/private-endpoints"
ZONE = "/subscriptions/s/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/privatelink.grafana.azure.com"
PRIVATE: dict[str, Any] = {"publicAccess": False, "privateAccess": {}}


@pytest.fixture(scope="module")
def private() -> Recording:
    """A new cluster in the stack's own network, and a workspace that is reached from there and from a hub."""
    return run_program(
        {
            "azure-native:location": "westeurope",
            "gpuheap:gpuPools": [{"name": "gpu", "vmSize": "Standard_NC24ads_A100_v4"}],
            "gpuheap:agent": {"build": {"registry": "example.azurecr.io"}},
            "gpuheap:grafana": {"publicAccess": False, "privateAccess": {"networks": [f"{NETWORKS}/hub"]}},
        }
    )


@pytest.fixture(scope="module")
def given() -> Recording:
    """A workspace that is there, an endpoint in a subnet that is there, and a zone that is there."""
    grafana = {
        "existing": {"name": "dashboards", "resourceGroup": "observability"},
        "privateAccess": {"subnetId": SUBNET, "dnsZone": ZONE, "location": "norwayeast"},
    }
    return run_program({**EXISTING_STACK, "gpuheap:grafana": grafana})


def test_the_endpoint_leads_to_the_workspace_from_a_subnet_of_our_network(private: Recording) -> None:
    subnet = private["grafana-access-subnet"].inputs
    assert (subnet["virtualNetworkName"], subnet["addressPrefix"]) == ("gpuheap-test", "10.40.255.224/28")
    endpoint = private["grafana-access-endpoint"].inputs
    assert endpoint["subnet"]["id"] == "/id/grafana-access-subnet"
    assert endpoint["privateLinkServiceConnections"] == [
        {"name": "grafana", "privateLinkServiceId": "/id/grafana", "groupIds": ["grafana"]}
    ]
    assert private["grafana"].inputs["properties"]["publicNetworkAccess"] == "Disabled"


def test_an_endpoint_that_lost_its_connection_is_made_anew_after_the_old_one_is_gone(
    private: Recording,
) -> None:
    request = private["grafana-access-endpoint"].request
    assert list(request.replaceOnChanges) == ["privateLinkServiceConnections"]
    assert request.deleteBeforeReplace


def test_its_name_is_in_a_zone_that_every_named_network_is_linked_to(private: Recording) -> None:
    zone = private.only("azure-native:privatedns:PrivateZone").inputs
    assert (zone["privateZoneName"], zone["location"]) == ("privatelink.grafana.azure.com", "global")
    record = private["grafana-access-record"].inputs
    assert record["privateDnsZoneConfigs"] == [
        {"name": "grafana", "privateDnsZoneId": "/id/grafana-access-zone"}
    ]
    links = private.of_type("azure-native:privatedns:VirtualNetworkLink")
    hub = f"{NETWORKS}/hub"
    assert {link.inputs["virtualNetworkLinkName"] for link in links} == {"own", label(hub)}
    assert hub in [link.inputs["virtualNetwork"]["id"] for link in links]
    assert not any(link.inputs["registrationEnabled"] for link in links)


@pytest.mark.parametrize("way", ["endpoint", "record", "link-own", "zone"])
def test_the_way_to_a_private_workspace_outlives_what_is_set_through_it(private: Recording, way: str) -> None:
    for content in ("pyroscope", "prometheus", "folder", "dashboard"):
        assert f"grafana-access-{way}" in private.outlived_by(f"grafana-content-{content}")


def test_changes_of_the_workspace_follow_one_another(private: Recording) -> None:
    assert "grafana-administrator" in private.outlived_by("grafana-access-endpoint")
    assert "grafana-access-endpoint" in private["private-link-endpoint"].needs


def test_the_subnet_comes_when_no_other_of_the_network_is_changed(private: Recording) -> None:
    assert {"network-nodes", "network-private-link"} <= private.outlived_by("grafana-access-subnet")


def test_content_of_a_private_workspace_of_ours_goes_with_it(private: Recording, dev: Recording) -> None:
    # From outside of the network nothing could be removed first.
    for name in ("grafana-content-pyroscope", "grafana-content-folder", "grafana-content-dashboard"):
        assert private[name].inputs["private"] is True
        assert private[name].request.deletedWith.endswith("::grafana")
        assert dev[name].inputs["private"] is False
        assert dev[name].request.deletedWith == ""


def test_a_zone_and_a_subnet_that_are_there_are_used(given: Recording) -> None:
    assert not given.of_type("azure-native:privatedns:PrivateZone")
    assert not given.of_type("azure-native:network:Subnet")
    endpoint = given["grafana-access-endpoint"].inputs
    assert (endpoint["subnet"]["id"], endpoint["location"]) == (SUBNET, "norwayeast")
    assert endpoint["privateLinkServiceConnections"][0]["privateLinkServiceId"] == "/existing/grafana"
    assert given["grafana-access-record"].inputs["privateDnsZoneConfigs"][0]["privateDnsZoneId"] == ZONE


def test_without_a_zone_others_write_the_name() -> None:
    chosen = {"publicAccess": False, "privateAccess": {"subnetId": SUBNET, "dnsZone": "none"}}
    stack = run_program({**EXISTING_STACK, "gpuheap:grafana": chosen})
    assert "grafana-access-endpoint" in stack.resources
    assert "grafana-access-record" not in stack.resources


def test_the_network_of_a_given_subnet_finds_the_name() -> None:
    chosen = {"privateAccess": {"subnetId": SUBNET, "networks": [f"{NETWORKS}/hub", f"{NETWORKS}/spoke"]}}
    stack = run_program({**EXISTING_STACK, "gpuheap:grafana": chosen})
    links = stack.of_type("azure-native:privatedns:VirtualNetworkLink")
    assert sorted(link.inputs["virtualNetwork"]["id"] for link in links) == [
        f"{NETWORKS}/hub",
        f"{NETWORKS}/spoke",
    ]


def test_a_public_workspace_has_none_of_it(dev: Recording) -> None:
    assert not [name for name in dev.resources if name.startswith("grafana-access")]
    assert "grafanaPrivateEndpointId" not in dev.outputs


def test_networks_of_one_name_have_different_links() -> None:
    other = f"{NETWORKS}/hub".replace("hub-rg", "other-rg")
    assert label(f"{NETWORKS}/hub") != label(other)
    assert label(f"{NETWORKS}/hub") == label(f"{NETWORKS}/hub".replace("hub-rg", "HUB-RG"))


@pytest.mark.parametrize(
    ("keys", "path", "reason"),
    [
        (
            {"grafana": {"publicAccess": False}},
            "grafana.privateAccess.dnsZone",
            "nobody reaches the workspace",
        ),
        (
            {"cluster": EXISTING, "gpuPools": [], "grafana": PRIVATE},
            "grafana.privateAccess.subnetId",
            "no network of its own",
        ),
        (
            {"grafana": {"privateAccess": {"location": "norwayeast"}}},
            "grafana.privateAccess.location",
            "in that network's region",
        ),
        (
            {"grafana": {"privateAccess": {"dnsZone": ZONE, "networks": [f"{NETWORKS}/hub"]}}},
            "grafana.privateAccess.networks",
            "its owner's to say",
        ),
        (
            {"grafana": {"privateAccess": {"dnsZone": ZONE.replace("grafana", "vault")}}},
            "grafana.privateAccess.dnsZone",
            "",
        ),
        (
            {"network": {"privateEndpointSubnet": "10.40.17.0/30"}, "grafana": PRIVATE},
            "network.privateEndpointSubnet",
            "too small for a private endpoint",
        ),
        (
            {"network": {"privateEndpointSubnet": "10.40.20.0/28"}},
            "network.privateEndpointSubnet",
            "no endpoint of the stack is in this subnet",
        ),
        (
            {
                "network": {"privateEndpointSubnet": "10.40.20.0/28"},
                "grafana": {"privateAccess": {"subnetId": SUBNET}},
            },
            "network.privateEndpointSubnet",
            "no endpoint of the stack is in this subnet",
        ),
        (
            {"network": {"privateEndpointSubnet": "10.40.16.0/28"}, "grafana": PRIVATE},
            "network.privateEndpointSubnet",
            "subnets overlap",
        ),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], path: str, reason: str) -> None:
    problem = only_problem(**keys)
    assert path in problem.path
    assert reason in problem.reason


def test_a_private_workspace_in_the_stacks_own_network_needs_no_more_words() -> None:
    assert accepted(grafana=PRIVATE).grafana.private_access is not None
