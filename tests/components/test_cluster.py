# SPDX-License-Identifier: Apache-2.0
"""The cluster and its GPU pool."""

from components.roles import NETWORK_CONTRIBUTOR
from tests.components.recorder import Recording

CLUSTER = "azure-native:containerservice:ManagedCluster"
POOL = "azure-native:containerservice:AgentPool"


def test_a_new_cluster_is_of_the_standard_tier_with_the_metrics_add_on(dev: Recording) -> None:
    cluster = dev.only(CLUSTER).inputs
    assert cluster["resourceName"] == "gpuheap-dev"
    assert cluster["sku"] == {"name": "Base", "tier": "Standard"}
    assert cluster["azureMonitorProfile"] == {"metrics": {"enabled": True}}


def test_the_system_pool_is_not_tainted(dev: Recording) -> None:
    (system,) = dev.only(CLUSTER).inputs["agentPoolProfiles"]
    assert system["mode"] == "System"
    assert "nodeTaints" not in system
    assert system["vnetSubnetID"] == "/id/network-nodes"


def test_pools_made_beside_the_cluster_are_no_drift_of_it(dev: Recording) -> None:
    assert list(dev.only(CLUSTER).request.ignoreChanges) == ["agentPoolProfiles"]


def test_the_control_plane_may_use_the_network_before_the_cluster_is_made(dev: Recording) -> None:
    role = dev["cluster-network-contributor"]
    assert role.inputs["roleDefinitionId"].endswith(f"/roleDefinitions/{NETWORK_CONTRIBUTOR}")
    assert role.inputs["scope"] == "/id/resource-group"
    assert role.inputs["principalId"] == "control-plane-principal"
    assert role.inputs["principalType"] == "ServicePrincipal"
    assert role.name in dev.only(CLUSTER).needs


def test_an_existing_clusters_own_identity_gets_the_right(existing: Recording) -> None:
    role = existing["cluster-network-contributor"].inputs
    assert role["principalId"] == "existing-principal"
    assert role["scope"] == "/id/resource-group"


def test_the_gpu_pool_is_tainted(dev: Recording) -> None:
    pool = dev.only(POOL)
    assert pool.inputs["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert pool.inputs["mode"] == "User"
    assert pool.inputs["gpuProfile"] == {"driver": "Install"}
    assert pool.inputs["vnetSubnetID"] == "/id/network-nodes"


def test_what_azure_cannot_change_in_a_pool_replaces_it_oldest_first(dev: Recording) -> None:
    pool = dev.only(POOL).request
    assert set(pool.replaceOnChanges) == {"gpuProfile", "osDiskType"}
    assert pool.deleteBeforeReplace, "two pools of one name cannot be"


def test_another_certificate_does_not_make_another_cluster(dev: Recording) -> None:
    assert dev["cluster-kubernetes"].inputs["clusterIdentifier"] == "gpuheap-dev/gpuheap-dev"
