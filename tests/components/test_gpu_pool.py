# SPDX-License-Identifier: Apache-2.0
"""Pools of GPU nodes on a standard cluster."""

from typing import Any

from components.gpu_pool import AgentPool, AgentPoolArgs
from components.settings.pools import GpuPool
from tests.components.recorder import Declared, Recording, record

POOL = "azure-native:containerservice:AgentPool"


def declared(size: str = "Standard_NC24ads_A100_v4", **keys: Any) -> Declared:
    args = AgentPoolArgs(
        pool=GpuPool.model_validate({"name": "gpu", "vmSize": size, **keys}),
        cluster_name="shared",
        cluster_resource_group_name="shared-rg",
        node_subnet_id=None,
        depends_on=[],
    )
    return record(lambda: AgentPool("gpu-pool-gpu", args)).only(POOL)


def test_a_pool_is_tainted_in_the_subnet_of_the_nodes(dev: Recording) -> None:
    pool = dev.only(POOL).inputs
    assert pool["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert pool["mode"] == "User"
    assert pool["count"] == 1
    assert pool["gpuProfile"] == {"driver": "Install"}
    assert pool["vnetSubnetID"] == "/id/network-nodes"


def test_what_azure_cannot_change_in_a_pool_replaces_it_oldest_first(dev: Recording) -> None:
    pool = dev.only(POOL).request
    assert {"gpuInstanceProfile", "gpuProfile", "osDiskType", "scaleSetPriority"} <= set(
        pool.replaceOnChanges
    )
    assert pool.deleteBeforeReplace, "two pools of one name cannot be"


def test_how_many_nodes_a_pool_that_scales_has_is_the_autoscalers_to_say() -> None:
    pool = declared(autoscale={"max": 6})
    assert "count" not in pool.inputs
    assert (pool.inputs["minCount"], pool.inputs["maxCount"]) == (0, 6)
    assert pool.inputs["enableAutoScaling"] is True
    assert list(pool.request.ignoreChanges) == ["count"]


def test_spot_nodes_are_declared_as_aks_shows_them() -> None:
    pool = declared(spot=True, labels={"team": "research"}).inputs
    assert pool["scaleSetPriority"] == "Spot"
    assert pool["spotMaxPrice"] == -1, "Azure's word for up to the regular price"
    assert pool["nodeTaints"][1:] == ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"]
    assert pool["nodeLabels"] == {"team": "research", "kubernetes.azure.com/scalesetpriority": "spot"}


def test_amd_nodes_have_amds_taint_and_no_driver_of_aks() -> None:
    pool = declared("Standard_ND96isr_MI300X_v5").inputs
    assert pool["nodeTaints"] == ["amd.com/gpu=present:NoSchedule"]
    assert pool["gpuProfile"] == {"driver": "None"}


def test_everything_that_can_be_said_of_a_pool_reaches_azure() -> None:
    group = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/gpus"
    pool = declared(
        "Standard_ND96isr_H100_v5",
        count=0,
        zones=["2"],
        capacityReservationGroup=group,
        mig={"profile": "3g"},
        driver="None",
        osDisk="Ephemeral",
        osDiskGib=256,
        upgrade={"maxSurge": "1", "drainTimeoutMinutes": 60, "soakMinutes": 5},
    ).inputs
    assert pool["count"] == 0
    assert pool["availabilityZones"] == ["2"]
    assert pool["capacityReservationGroupID"] == group
    assert pool["gpuInstanceProfile"] == "MIG3g"
    assert pool["gpuProfile"] == {"driver": "None"}
    assert (pool["osDiskType"], pool["osDiskSizeGB"]) == ("Ephemeral", 256)
    assert pool["upgradeSettings"] == {
        "maxSurge": "1",
        "drainTimeoutInMinutes": 60,
        "nodeSoakDurationInMinutes": 5,
    }


def test_a_pool_without_spare_capacity_is_upgraded_with_a_node_less() -> None:
    assert declared(upgrade={"maxUnavailable": "1"}).inputs["upgradeSettings"] == {
        "maxSurge": "0",
        "maxUnavailable": "1",
    }
