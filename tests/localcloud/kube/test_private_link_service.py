# SPDX-License-Identifier: Apache-2.0
"""From annotations to a Private Link Service, by the rules in the documentation and source of cloud-provider-azure."""

from dataclasses import replace

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Service

from localcloud.azure.records import Resource
from localcloud.kube.private_link_service import Cluster, NotPossible, private_link_service, subnet_id

SUBSCRIPTION = "/subscriptions/11111111-1111-1111-1111-111111111111"
NETWORK = f"{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/hub"
CLUSTER = Cluster(
    name="aks",
    subscription="11111111-1111-1111-1111-111111111111",
    node_resource_group="MC_apps_aks_westeurope",
    location="westeurope",
    node_subnet_id=None,
)
IN_OWN_NETWORK = replace(CLUSTER, node_subnet_id=f"{NETWORK}/subnets/nodes")


def service(**annotations: str) -> Service:
    asked = {"load-balancer-internal": "true", "pls-create": "true"}
    asked |= {name.replace("_", "-"): value for name, value in annotations.items()}
    prefixed = {f"service.beta.kubernetes.io/azure-{name}": value for name, value in asked.items()}
    uid = "6f0c2a51-1f3e-4f0a-9b1c-000102030405"
    return Service(metadata=ObjectMeta(name="web", namespace="shop", uid=uid, annotations=prefixed))


def test_without_a_name_it_is_called_after_the_load_balancer() -> None:
    made = private_link_service(service(), CLUSTER)
    assert made.name == "pls-a6f0c2a511f3e4f0a9b1c00010203040"
    assert made.id.split("/")[4] == "MC_apps_aks_westeurope"


def test_a_name_that_it_has_stays_when_the_annotation_goes() -> None:
    assert private_link_service(service(), CLUSTER, name="web-pls").name == "web-pls"


def test_tags_say_whose_it_is() -> None:
    assert private_link_service(service(), CLUSTER).outputs["tags"] == {
        "k8s-azure-owner-service": "shop/web",
        "k8s-azure-cluster-name": "aks",
    }


def test_lists_are_separated_by_spaces_and_a_star_is_everybody() -> None:
    asked = service(pls_visibility="one * two", pls_auto_approval="one  two", pls_fqdns="a.example b.example")
    made = private_link_service(asked, CLUSTER).inputs
    assert made["visibility"] == {"subscriptions": ["*"]}
    assert made["autoApproval"] == {"subscriptions": ["one", "two"]}
    assert made["fqdns"] == ["a.example", "b.example"]


@pytest.mark.parametrize(
    ("annotation", "enabled"), [("true", True), (" True ", True), ("false", False), ("yes", False)]
)
def test_the_proxy_protocol_is_on_for_true_only(annotation: str, enabled: bool) -> None:
    made = private_link_service(service(pls_proxy_protocol=annotation), CLUSTER)
    assert made.inputs["enableProxyProtocol"] is enabled


def test_a_public_service_is_refused_with_the_annotation_that_it_lacks() -> None:
    with pytest.raises(NotPossible, match='azure-load-balancer-internal: "true"'):
        private_link_service(service(load_balancer_internal="false"), CLUSTER)


def test_a_public_service_without_floating_ip_has_its_own_front_end() -> None:
    asked = service(load_balancer_internal="false", disable_load_balancer_floating_ip="true")
    (front_end,) = private_link_service(asked, CLUSTER).inputs["loadBalancerFrontendIpConfigurations"]
    assert "/loadBalancers/kubernetes/" in front_end["id"]


def test_addresses_given_come_first_and_the_first_is_primary() -> None:
    asked = service(
        pls_name="web-pls",
        pls_ip_configuration_subnet="private-link",
        pls_ip_configuration_ip_address="10.0.1.7 10.0.1.8",
        pls_ip_configuration_ip_address_count="3",
    )
    configurations = private_link_service(asked, IN_OWN_NETWORK).inputs["ipConfigurations"]
    assert [(each["name"], each["primary"], each.get("privateIPAddress")) for each in configurations] == [
        ("private-link-web-pls-static-10.0.1.7", True, "10.0.1.7"),
        ("private-link-web-pls-static-10.0.1.8", False, "10.0.1.8"),
        ("private-link-web-pls-dynamic-0", False, None),
    ]
    assert {each["subnet"]["id"] for each in configurations} == {f"{NETWORK}/subnets/private-link"}


def test_a_long_name_of_an_address_configuration_is_cut_to_80_characters() -> None:
    asked = service(pls_name="p" * 80)
    (configuration,) = private_link_service(asked, IN_OWN_NETWORK).inputs["ipConfigurations"]
    assert len(configuration["name"]) == 80
    assert configuration["name"].endswith("-dynamic-0")


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"pls_ip_configuration_ip_address_count": "0"}, "must be 1 to 8, it is 0"),
        ({"pls_ip_configuration_ip_address_count": "9"}, "must be 1 to 8, it is 9"),
        ({"pls_ip_configuration_ip_address_count": "many"}, "must be 1 to 8, it is many"),
        ({"pls_ip_configuration_ip_address": "fd00::1"}, "fd00::1 is no IPv4 address"),
        ({"pls_ip_configuration_ip_address": "10.0.0.1 10.0.0.2"}, "names 2 addresses, .* allows 1"),
    ],
)
def test_addresses_that_cannot_be_are_refused(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(NotPossible, match=message):
        private_link_service(service(**annotations), CLUSTER)


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "nodes"),
        ({"load_balancer_internal_subnet": "inside"}, "inside"),
        ({"load_balancer_internal_subnet": "inside", "pls_ip_configuration_subnet": "links"}, "links"),
    ],
)
def test_the_subnet_is_the_named_one_or_that_of_the_nodes(annotations: dict[str, str], name: str) -> None:
    assert subnet_id(service(**annotations), IN_OWN_NETWORK) == f"{NETWORK}/subnets/{name}"


def test_a_cluster_is_read_from_what_azure_holds() -> None:
    stored = Resource(
        id=f"{SUBSCRIPTION}/resourceGroups/apps/providers/Microsoft.ContainerService/managedClusters/aks",
        token="azure-native:containerservice:ManagedCluster",
        inputs={"agentPoolProfiles": [{"name": "system", "vnetSubnetID": f"{NETWORK}/subnets/nodes"}]},
        outputs={"location": "westeurope"},
    )
    assert Cluster.of(stored) == IN_OWN_NETWORK
