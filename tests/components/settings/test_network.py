# SPDX-License-Identifier: Apache-2.0
"""The ranges of a new cluster's network."""

from typing import Any

import pytest

from components.settings.network import GivenSubnets, Network
from tests.components.configs import accepted, only_problem

SCALES = {"name": "gpu", "vmSize": "Standard_NC48ads_A100_v4", "autoscale": {"max": 4}}
VNET = "/subscriptions/s/resourceGroups/shared/providers/Microsoft.Network/virtualNetworks/shared"
AUTOMATIC: dict[str, Any] = {"cluster": {"mode": "automatic"}, "gpuPools": [SCALES]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [("10.40.0.0/33", "no IPv4 range"), ("10.40.0.1/16", "host bits set"), ("8.8.0.0/16", "not private")],
)
def test_a_bad_range_is_refused(given: str, reason: str) -> None:
    problem = only_problem(network={"addressSpace": given})
    assert problem.path == "gpuheap:network.addressSpace"
    assert problem.given == given
    assert reason in problem.reason


def test_a_subnet_outside_the_address_space_is_refused() -> None:
    problem = only_problem(network={"nodeSubnet": "10.41.0.0/20"})
    assert (problem.path, problem.given) == ("gpuheap:network.nodeSubnet", "10.41.0.0/20")
    assert problem.allowed == "a range inside 10.40.0.0/16"


def test_subnets_that_overlap_are_refused() -> None:
    problem = only_problem(network={"privateLinkSubnet": "10.40.8.0/24"})
    assert problem.path == "gpuheap:network.privateLinkSubnet"
    assert problem.allowed == "a range outside 10.40.0.0/20"
    assert problem.fix == "pulumi config set --path 'gpuheap:network.privateLinkSubnet' 10.40.16.0/24"


def test_an_address_space_that_the_cluster_uses_inside_is_refused() -> None:
    ranges = {
        "addressSpace": "10.0.0.0/8",
        "nodeSubnet": "10.40.0.0/20",
        "privateLinkSubnet": "10.40.16.0/24",
    }
    assert "which the cluster uses for services" in only_problem(network=ranges).reason


def test_the_api_servers_subnet_is_the_end_of_the_address_space_unless_said_otherwise() -> None:
    assert Network().api_server_range == "10.40.255.240/28"
    given = accepted(**AUTOMATIC, network={"apiServerSubnet": "10.40.17.0/27"}).network
    assert isinstance(given, Network) and given.api_server_range == "10.40.17.0/27"


def test_a_subnet_too_small_for_the_api_server_is_refused() -> None:
    problem = only_problem(**AUTOMATIC, network={"apiServerSubnet": "10.40.17.0/29"})
    assert problem.path == "gpuheap:network.apiServerSubnet"
    assert problem.allowed == "/28 or larger"


def test_what_only_others_need_takes_no_range() -> None:
    ranges = {
        "addressSpace": "10.9.0.0/24",
        "nodeSubnet": "10.9.0.0/25",
        "privateLinkSubnet": "10.9.0.128/25",
    }
    accepted(network=ranges)
    for keys, key in (
        (AUTOMATIC, "apiServerSubnet"),
        ({"grafana": {"privateAccess": {}}}, "privateEndpointSubnet"),
    ):
        problem = only_problem(**keys, network=ranges)
        assert (problem.path, problem.reason) == (f"gpuheap:network.{key}", "subnets overlap")


def test_a_range_for_what_the_stack_does_not_have_is_refused() -> None:
    problem = only_problem(network={"apiServerSubnet": "10.40.17.0/28"})
    assert problem.path == "gpuheap:network.apiServerSubnet"
    assert problem.allowed == "apiServerSubnet with cluster.mode: automatic"


def test_subnets_that_are_there_can_be_used() -> None:
    config = accepted(
        network={"existing": {"nodeSubnetId": f"{VNET}/subnets/nodes", "privateLinkSubnet": "private-link"}}
    )
    assert isinstance(config.network, GivenSubnets)


def test_a_subnet_that_is_no_resource_id_is_refused() -> None:
    problem = only_problem(network={"existing": {"nodeSubnetId": "nodes", "privateLinkSubnet": "pl"}})
    assert problem.path == "gpuheap:network.existing.nodeSubnetId"


def test_ranges_and_subnets_that_are_there_exclude_each_other() -> None:
    given = {"nodeSubnetId": f"{VNET}/subnets/nodes", "privateLinkSubnet": "private-link"}
    problem = only_problem(network={"existing": given, "addressSpace": "10.40.0.0/16"})
    assert problem.path == "gpuheap:network.addressSpace"
