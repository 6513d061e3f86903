# SPDX-License-Identifier: Apache-2.0
"""What goes with what: each part is right by itself, and the whole is refused."""

from typing import Any

import pytest

from components.config_problems import Problem
from components.settings.quantities import amount
from tests.components.configs import EXISTING, accepted, only_problem, refused
from tests.components.settings.test_network import VNET

GPU = {"name": "gpu", "vmSize": "Standard_NC48ads_A100_v4"}
SCALES = {**GPU, "autoscale": {"max": 4}}
SUBNETS = {"nodeSubnetId": f"{VNET}/subnets/nodes", "privateLinkSubnet": "private-link"}
API_SERVER = {"apiServerSubnetId": f"{VNET}/subnets/api-server"}


def automatic(*pools: dict[str, Any], **cluster: Any) -> Problem:
    return only_problem(cluster={"mode": "automatic", **cluster}, gpuPools=list(pools or [SCALES]))


def test_an_existing_cluster_keeps_its_network() -> None:
    problem = only_problem(cluster=EXISTING, network={})
    assert problem.path == "gpuheap:network"


def test_an_existing_cluster_needs_no_gpu_pool_but_a_new_one_does() -> None:
    assert accepted(cluster=EXISTING, gpuPools=[]).gpu_pools == []
    assert only_problem(gpuPools=[]).path == "gpuheap:gpuPools[0].vmSize"


def test_a_new_cluster_names_no_subnet_for_private_link_beside_its_network() -> None:
    assert only_problem(privateLink={"subnet": "private-link"}).path == "gpuheap:privateLink.subnet"


def test_in_the_stacks_own_network_the_range_for_private_link_is_said_once() -> None:
    problem = only_problem(privateLink={"sourceRange": "10.1.2.0/24"})
    assert problem.path == "gpuheap:privateLink.sourceRange"
    assert "network.privateLinkSubnet is that range" in problem.reason
    accepted(network={"existing": SUBNETS}, privateLink={"sourceRange": "10.1.2.0/24"})


@pytest.mark.parametrize("name", ["default", "kube-system", "gadget", "gpuheap", "gpu-readiness"])
def test_a_workspace_is_no_namespace_of_others(name: str) -> None:
    # A workspace denies everything that it does not name: in kube-system, that would end the cluster's DNS.
    problem = only_problem(workspaces=[{"name": name}])
    assert problem.path == "gpuheap:workspaces[0].name"
    assert "is not a workspace's" in problem.reason


def test_two_workspaces_of_one_name_are_refused() -> None:
    problem = only_problem(workspaces=[{"name": "research"}, {"name": "research"}])
    assert (problem.path, problem.reason) == (
        "gpuheap:workspaces[1].name",
        "another workspace has this name",
    )


@pytest.mark.parametrize(
    ("request_", "limit", "fits"),
    [("2Gi", "1Gi", False), ("1024Mi", "1Gi", True), ("1025Mi", "1Gi", False)],
)
def test_a_container_asks_for_no_more_memory_than_it_may_have(request_: str, limit: str, fits: bool) -> None:
    # https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity: Gi is 1024 Mi
    memory = {"memoryRequest": request_, "memoryLimit": limit}
    places: list[dict[str, Any]] = [
        {"inspektorGadget": memory},
        {"workspaces": [{"name": "research", "containerDefaults": memory}]},
    ]
    for keys in places:
        if fits:
            accepted(**keys)
        else:
            assert only_problem(**keys).path.endswith(".memoryRequest")


def test_quantities_of_different_units_are_compared_as_kubernetes_does() -> None:
    assert amount("1G") < amount("1Gi") == amount("1024Mi") < amount("1.1G")
    assert amount("1500m") == amount("1.5")


def test_aks_automatic_takes_pools_that_scale() -> None:
    config = accepted(
        cluster={"mode": "automatic"}, gpuPools=[SCALES, {**SCALES, "name": "spot", "spot": True}]
    )
    assert [pool.name for pool in config.gpu_pools] == ["gpu", "spot"]


@pytest.mark.parametrize(
    ("pool", "key", "reason"),
    [
        ({**SCALES, "driver": "None"}, "driver", "AKS Automatic installs the driver that fits"),
        ({**SCALES, "osDisk": "Managed"}, "osDisk", "AKS Automatic chooses the OS disk"),
        ({**SCALES, "upgrade": {"maxSurge": "1"}}, "upgrade", "AKS Automatic replaces nodes in its own way"),
        (
            {**SCALES, "spot": True, "spotMaxPrice": 2.5},
            "spotMaxPrice",
            "AKS Automatic pays spot nodes up to the regular price",
        ),
        (
            {
                **SCALES,
                "capacityReservationGroup": "/subscriptions/s/resourceGroups/r"
                "/providers/Microsoft.Compute/capacityReservationGroups/gpus",
            },
            "capacityReservationGroup",
            "nodes that AKS Automatic makes cannot use reserved capacity",
        ),
    ],
)
def test_what_karpenter_has_no_word_for_is_refused_on_aks_automatic(
    pool: dict[str, Any], key: str, reason: str
) -> None:
    problem = automatic(pool)
    assert (problem.path, problem.reason) == (f"gpuheap:gpuPools[0].{key}", reason)
    assert problem.fix == f"pulumi config rm --path 'gpuheap:gpuPools[0].{key}'"
    assert problem.allowed == f"{key} with cluster.mode: standard"


def test_a_fixed_number_of_nodes_is_refused_on_aks_automatic_with_all_that_follows() -> None:
    problems = refused(
        cluster={"mode": "automatic"}, gpuPools=[{**GPU, "count": 2, "mig": {"profile": "1g"}}]
    )
    assert [problem.path for problem in problems] == [
        "gpuheap:gpuPools[0].count",
        "gpuheap:gpuPools[0].mig",
        "gpuheap:gpuPools[0].autoscale.max",
    ]


def test_aks_automatic_keeps_no_empty_nodes() -> None:
    assert automatic({**GPU, "autoscale": {"min": 1, "max": 4}}).path == "gpuheap:gpuPools[0].autoscale.min"


def test_a_size_whose_gpus_nobody_counted_has_no_bound_on_aks_automatic() -> None:
    problem = automatic({**SCALES, "vmSize": "Standard_ND96isr_X900_v9"})
    assert problem.path == "gpuheap:gpuPools[0].vmSize"


@pytest.mark.parametrize(
    ("key", "value"), [("kubernetesVersion", "1.34"), ("upgradeChannel", "rapid"), ("localAccounts", True)]
)
def test_what_aks_automatic_fixes_cannot_be_said(key: str, value: Any) -> None:
    problem = automatic(**{key: value})
    assert problem.path == f"gpuheap:cluster.{key}"
    assert problem.allowed == f"{key} with cluster.mode: standard"


def test_aks_automatic_in_a_given_network_needs_a_subnet_for_the_api_server() -> None:
    keys: dict[str, Any] = {"cluster": {"mode": "automatic"}, "gpuPools": [SCALES]}
    assert accepted(**keys, network={"existing": SUBNETS | API_SERVER})
    problem = only_problem(**keys, network={"existing": SUBNETS})
    assert problem.path == "gpuheap:network.existing.apiServerSubnetId"


def test_a_standard_cluster_has_no_use_for_a_subnet_of_the_api_server() -> None:
    problem = only_problem(network={"existing": SUBNETS | API_SERVER})
    assert problem.path == "gpuheap:network.existing.apiServerSubnetId"
    assert problem.allowed == "apiServerSubnetId with cluster.mode: automatic"


@pytest.mark.parametrize("name", ["gpu", "system"])
def test_two_pools_of_one_name_are_refused(name: str) -> None:
    problem = only_problem(gpuPools=[GPU, {**GPU, "name": name}])
    assert (problem.path, problem.given) == ("gpuheap:gpuPools[1].name", name)


def test_pools_of_an_existing_automatic_cluster_are_karpenters_too() -> None:
    problem = only_problem(cluster={**EXISTING, "mode": "automatic"}, gpuPools=[{**SCALES, "driver": "None"}])
    assert problem.path == "gpuheap:gpuPools[0].driver"


@pytest.mark.parametrize(
    ("version", "channel", "fix"),
    [
        ("1.34", "stable", "pulumi config rm --path 'gpuheap:cluster.kubernetesVersion'"),
        ("1.34.2", "patch", "pulumi config set --path 'gpuheap:cluster.kubernetesVersion' 1.34"),
    ],
)
def test_a_version_that_aks_changes_by_itself_is_refused(version: str, channel: str, fix: str) -> None:
    problem = only_problem(cluster={"kubernetesVersion": version, "upgradeChannel": channel})
    assert problem.path == "gpuheap:cluster.kubernetesVersion"
    assert problem.fix == fix


@pytest.mark.parametrize(
    ("version", "channel"), [("1.34", None), ("1.34.2", "node-image"), ("1.34.2", "none")]
)
def test_a_version_that_stays_is_accepted(version: str, channel: str | None) -> None:
    assert accepted(cluster={"kubernetesVersion": version, "upgradeChannel": channel})
