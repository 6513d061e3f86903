# SPDX-License-Identifier: Apache-2.0
from localcloud.azure.nodes import Pool
from localcloud.azure.records import Json
from localcloud.kube.gpus import Gpus

ID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/aks/agentPools/gpu"


def _pool(**properties: object) -> Pool:
    given: Json = {"vmSize": "Standard_NC48ads_A100_v4", "count": 2, **properties}
    return Pool(id=ID, properties=given, node_resource_group="MC_rg", location="westeurope")


def test_a_gpu_node_has_the_labels_that_aks_gives_it_and_says_which_gpus_it_has() -> None:
    first, second = _pool(nodeLabels={"team": "vision"}).nodes()
    assert first.metadata and second.metadata and first.metadata.name != second.metadata.name
    labels = first.metadata.labels or {}
    assert labels["kubernetes.azure.com/accelerator"] == "nvidia"
    assert labels["agentpool"] == labels["kubernetes.azure.com/agentpool"] == "gpu"
    assert labels["kubernetes.azure.com/mode"] == "user"
    assert labels["node.kubernetes.io/instance-type"] == "Standard_NC48ads_A100_v4"
    assert labels["team"] == "vision"
    assert Gpus.of(first) == Gpus(vendor="nvidia", count=2)
    assert first.status and first.status.capacity
    assert "nvidia.com/gpu" not in first.status.capacity, "that comes with a device plugin"


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


def test_a_cut_gpu_has_its_instances_under_nvidias_name() -> None:
    (node, *_) = _pool(gpuInstanceProfile="MIG1g").nodes()
    assert Gpus.of(node) == Gpus(vendor="nvidia", count=2, slices=7, slice="1g.10gb")


def test_a_node_of_amds_says_so_and_an_ordinary_one_has_no_gpus() -> None:
    (instinct, *_) = _pool(vmSize="Standard_ND96isr_MI300X_v5").nodes()
    assert Gpus.of(instinct) == Gpus(vendor="amd", count=8)
    (ordinary, *_) = _pool(vmSize="Standard_D4s_v5").nodes()
    assert Gpus.of(ordinary) is None
