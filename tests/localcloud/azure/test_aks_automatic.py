# SPDX-License-Identifier: Apache-2.0
"""What simulated Azure refuses on AKS Automatic, and beside it."""

from typing import Any

import grpc
import pytest

from localcloud.azure import aks_automatic
from localcloud.azure.errors import AzureError
from localcloud.azure.records import Json, Resource
from localcloud.azure.store import Store
from localcloud.azure.types_cluster import AGENT_POOL, CLUSTER
from tests.localcloud.azure.asking import GROUP, Engine

AKS = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/aks"
SAFEGUARD = "azure-native:containerservice:DeploymentSafeguard"
AUTOMATIC: Json = {"sku": {"name": "Automatic", "tier": "Standard"}, "kubernetesVersion": "1.36.3"}
BASE: Json = {"sku": {"name": "Base", "tier": "Standard"}, "kubernetesVersion": "1.36.3"}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"autoUpgradeProfile": {"upgradeChannel": "rapid"}}, "upgradeChannel is stable"),
        ({"autoUpgradeProfile": {"nodeOSUpgradeChannel": "None"}}, "nodeOSUpgradeChannel is NodeImage"),
        ({"nodeProvisioningProfile": {"mode": "Manual"}}, "mode is Auto"),
        ({"nodeResourceGroupProfile": {"restrictionLevel": "Unrestricted"}}, "restrictionLevel is ReadOnly"),
        (
            {"agentPoolProfiles": [{"name": "system", "vnetSubnetID": "/subnet"}]},
            "apiServerAccessProfile.subnetId",
        ),
    ],
)
def test_what_is_fixed_cannot_be_changed(inputs: Json, words: str) -> None:
    with pytest.raises(AzureError, match=words):
        aks_automatic.check(inputs)


def test_saying_what_is_fixed_is_allowed() -> None:
    aks_automatic.check(
        {
            "autoUpgradeProfile": {"upgradeChannel": "stable", "nodeOSUpgradeChannel": "NodeImage"},
            "nodeProvisioningProfile": {"mode": "Auto"},
            "agentPoolProfiles": [{"name": "system", "vnetSubnetID": "/subnet"}],
            "apiServerAccessProfile": {"subnetId": "/subnet"},
        }
    )


def _cluster(store: Store, outputs: Json) -> None:
    store.put_resource(Resource(id=AKS, token=CLUSTER, outputs=outputs), actor="test")


def test_safeguards_are_one_of_a_cluster(engine: Engine, group: Any, store: Store) -> None:
    _cluster(store, AUTOMATIC)
    id, outputs = engine.create(
        SAFEGUARD, {"resourceUri": AKS, "level": "Enforce", "excludedNamespaces": ["gadget"]}
    )
    assert id == f"{AKS}/providers/Microsoft.ContainerService/deploymentSafeguards/default"
    assert outputs["excludedNamespaces"] == ["gadget"]


def test_a_standard_cluster_has_no_safeguards_here(engine: Engine, group: Any, store: Store) -> None:
    _cluster(store, BASE)
    with pytest.raises(grpc.RpcError, match="policy add-on"):
        engine.create(SAFEGUARD, {"resourceUri": AKS, "level": "Warn"})


def test_no_pool_scales_by_itself_beside_node_auto_provisioning(
    engine: Engine, group: Any, store: Store
) -> None:
    _cluster(store, AUTOMATIC)
    inputs = {"resourceGroupName": "rg", "resourceName": "aks", "agentPoolName": "gpu"}
    scales = {"vmSize": "Standard_NC24ads_A100_v4", "enableAutoScaling": True, "minCount": 0, "maxCount": 2}
    with pytest.raises(grpc.RpcError, match="node auto-provisioning"):
        engine.create(AGENT_POOL, {**inputs, **scales})
