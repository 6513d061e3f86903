# SPDX-License-Identifier: Apache-2.0
from localcloud.azure.nodes import Pool
from localcloud.azure.records import Json

ID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/aks/agentPools/gpu"


def _pool(**properties: object) -> Pool:
    given: Json = {"vmSize": "Standard_NC48ads_A100_v4", "count": 2, **properties}
    return Pool(id=ID, properties=given, node_resource_group="MC_rg", location="westeurope")


def test_a_gpu_node_has_the_labels_and_the_capacity_that_aks_gives_it() -> None:
    first, second = _pool(nodeLabels={"team": "vision"}).nodes()
    assert first.metadata and second.metadata and first.metadata.name != second.metadata.name
    labels = first.metadata.labels or {}
    assert labels["kubernetes.azure.com/accelerator"] == "nvidia"
    assert labels["agentpool"] == labels["kubernetes.azure.com/agentpool"] == "gpu"
    assert labels["kubernetes.azure.com/mode"] == "user"
    assert labels["node.kubernetes.io/instance-type"] == "Standard_NC48ads_A100_v4"
    assert labels["team"] == "vision"
    assert first.status and first.status.capacity and first.status.capacity["nvidia.com/gpu"] == "2"


def test_taints_are_those_of_the_pool() -> None:
    (node, *_) = _pool(nodeTaints=["nvidia.com/gpu=present:NoSchedule", "quiet:PreferNoSchedule"]).nodes()
    assert node.spec and [(t.key, t.value, t.effect) for t in node.spec.taints or ()] == [
        ("nvidia.com/gpu", "present", "NoSchedule"),
        ("quiet", None, "PreferNoSchedule"),
    ]


def test_spot_nodes_have_aks_s_own_taint() -> None:
    (node, *_) = _pool(scaleSetPriority="Spot").nodes()
    assert node.spec and [taint.key for taint in node.spec.taints or ()] == [
        "kubernetes.azure.com/scalesetpriority"
    ]


def test_a_pool_that_scales_itself_has_its_smallest_size() -> None:
    assert _pool(enableAutoScaling=True, minCount=0, maxCount=5).nodes() == []


def test_a_cut_gpu_counts_as_its_instances() -> None:
    (node, *_) = _pool(gpuInstanceProfile="MIG1g").nodes()
    assert node.status and node.status.capacity and node.status.capacity["nvidia.com/gpu"] == "14"
