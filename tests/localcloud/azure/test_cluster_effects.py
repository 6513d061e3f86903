# SPDX-License-Identifier: Apache-2.0
"""What pools and extensions do in a real cluster."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from lightkube import ApiError, Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Namespace, Node, Pod

from localcloud.azure.records import Json, Resource
from localcloud.azure.store import Store
from localcloud.kube.control_plane import ControlPlane
from localcloud.plugin.values import from_struct
from tests.localcloud.azure.asking import GROUP, Engine

CLUSTER = "azure-native:containerservice:ManagedCluster"
POOL = "azure-native:containerservice:AgentPool"
EXTENSION = "azure-native:kubernetesconfiguration:Extension"
RULE = "azure-native:monitor:DataCollectionRule"
ASSOCIATION = "azure-native:monitor:DataCollectionRuleAssociation"

CLUSTER_INPUTS: Json = {
    "resourceGroupName": "rg",
    "resourceName": "aks",
    "identity": {"type": "SystemAssigned"},
    "agentPoolProfiles": [{"name": "system", "mode": "System", "count": 1, "vmSize": "Standard_D4s_v5"}],
    "azureMonitorProfile": {"metrics": {"enabled": True}},
}
POOL_INPUTS: Json = {
    "resourceGroupName": "rg",
    "resourceName": "aks",
    "agentPoolName": "gpu",
    "vmSize": "Standard_NC24ads_A100_v4",
    "count": 1,
    "nodeTaints": ["nvidia.com/gpu=present:NoSchedule"],
}
EXTENSION_INPUTS: Json = {
    "resourceGroupName": "rg",
    "clusterRp": "Microsoft.ContainerService",
    "clusterResourceName": "managedClusters",
    "clusterName": "aks",
    "extensionName": "inspektor-gadget",
    "extensionType": "microsoft.inspektorgadget",
    "releaseTrain": "preview",
    "autoUpgradeMinorVersion": True,
    "configurationSettings": {"gpuObservability.enabled": "true", "azureMonitor.enabled": "true"},
}


@pytest.fixture
def state(tmp_path: Path, control_plane: ControlPlane) -> Path:
    """The state folder of a cloud whose cluster is real."""
    endpoints = {"arm": "https://127.0.0.1:1", "kubeconfig": str(control_plane.kubeconfig)}
    (tmp_path / "cloud.json").write_text(json.dumps(endpoints))
    return tmp_path


@pytest.fixture
def aks(engine: Engine, group: Resource, cluster: Client) -> Any:
    """An AKS cluster with one system node; its id. It is gone at the end."""
    id, _ = engine.create(CLUSTER, CLUSTER_INPUTS)
    yield id
    engine.delete(CLUSTER, id)
    assert _nodes(cluster, "system") == _nodes(cluster, "gpu") == []


def _nodes(cluster: Client, pool: str) -> list[str]:
    return [
        str(node.metadata and node.metadata.name) for node in cluster.list(Node, labels={"agentpool": pool})
    ]


def _allocatable(cluster: Client, name: str) -> dict[str, str]:
    status = cluster.get(Node, name).status
    return (status and status.allocatable) or {}


def test_a_cluster_has_the_nodes_of_its_own_pools(aks: str, cluster: Client, store: Store) -> None:
    assert len(_nodes(cluster, "system")) == 1
    found = store.resource(aks)
    assert found
    group = store.resource(f"{GROUP.rpartition('/')[0]}/{found.outputs['nodeResourceGroup']}")
    assert group and group.outputs["managedBy"] == aks


def test_there_is_one_control_plane(aks: str, engine: Engine) -> None:
    with pytest.raises(grpc.RpcError, match="one control plane"):
        engine.create(CLUSTER, {**CLUSTER_INPUTS, "resourceName": "another"})


def test_a_gpu_pool_has_tainted_nodes_that_become_ready_and_offer_gpus_with_a_plugin(
    aks: str, engine: Engine, cluster: Client, waiting: Any, device_plugin: Any
) -> None:
    id, outputs = engine.create(POOL, POOL_INPUTS)
    assert outputs["provisioningState"] == "Succeeded"
    (name,) = _nodes(cluster, "gpu")

    def ready() -> bool:
        status = cluster.get(Node, name).status
        return any(c.type == "Ready" and c.status == "True" for c in (status and status.conditions) or ())

    waiting("the node to be Ready", ready)
    device_plugin("gpu")
    waiting("a GPU", lambda: _allocatable(cluster, name).get("nvidia.com/gpu") == "1")
    node = cluster.get(Node, name)
    assert node.spec and any(taint.key == "nvidia.com/gpu" for taint in node.spec.taints or ())
    checked, _ = engine.check(POOL, {**POOL_INPUTS, "count": 3, "nodeLabels": {"a": "b"}})
    engine.update(POOL, id, outputs, checked)
    assert len(_nodes(cluster, "gpu")) == 3
    assert len(list(cluster.list(Node, labels={"agentpool": "gpu", "a": "b"}))) == 3
    engine.update(POOL, id, outputs, {**checked, "count": 1})
    assert _nodes(cluster, "gpu") == [name]
    engine.delete(POOL, id)
    assert _nodes(cluster, "gpu") == [] and len(_nodes(cluster, "system")) == 1


def test_a_gpu_that_cannot_be_cut_is_refused(aks: str, engine: Engine) -> None:
    t4 = {"vmSize": "Standard_NC4as_T4_v3", "gpuInstanceProfile": "MIG1g"}
    with pytest.raises(grpc.RpcError, match="cannot be cut into MIG1g"):
        engine.create(POOL, {**POOL_INPUTS, **t4})


def test_a_cluster_shows_all_its_pools_and_a_refresh_keeps_them_apart(
    aks: str, engine: Engine, store: Store
) -> None:
    made = engine.invoke(
        "azure-native:containerservice:getManagedCluster", {"resourceGroupName": "rg", "resourceName": "aks"}
    )
    engine.create(POOL, POOL_INPUTS)
    answer = engine.read(CLUSTER, aks, outputs=made, inputs=CLUSTER_INPUTS)
    refreshed = from_struct(answer.inputs)
    assert [pool["name"] for pool in refreshed["agentPoolProfiles"]] == ["system", "gpu"]
    checked, failures = engine.check(CLUSTER, refreshed)
    assert failures == {}
    engine.update(CLUSTER, aks, made, checked)
    stored = store.resource(aks)
    assert stored and [pool["name"] for pool in stored.outputs["agentPoolProfiles"]] == ["system"]


def _associate(engine: Engine, aks: str) -> None:
    rule, _ = engine.create(RULE, {"resourceGroupName": "rg", "dataCollectionRuleName": "rule"})
    engine.create(
        ASSOCIATION, {"resourceUri": aks, "associationName": "metrics", "dataCollectionRuleId": rule}
    )


def test_the_extension_runs_on_every_node_whatever_its_taints(
    aks: str, engine: Engine, cluster: Client
) -> None:
    engine.create(POOL, POOL_INPUTS)
    _associate(engine, aks)
    id, outputs = engine.create(EXTENSION, EXTENSION_INPUTS)
    assert outputs["provisioningState"] == "Succeeded"
    pods = list(cluster.list(Pod, namespace="gadget", labels={"k8s-app": "gadget"}))
    assert {pod.spec.nodeName for pod in pods if pod.spec} == {
        *_nodes(cluster, "system"),
        *_nodes(cluster, "gpu"),
    }
    engine.delete(EXTENSION, id)
    with pytest.raises(ApiError):
        cluster.get(Namespace, "gadget")


def test_a_setting_that_a_program_drops_stays_set(aks: str, engine: Engine, cluster: Client) -> None:
    """The service merges; azure-native does not tell."""
    _associate(engine, aks)
    id, outputs = engine.create(EXTENSION, EXTENSION_INPUTS)
    inputs = {**EXTENSION_INPUTS, "configurationSettings": {"gpuObservability.enabled": "false"}}
    changed = engine.update(EXTENSION, id, outputs, inputs)
    assert changed["configurationSettings"] == {
        "gpuObservability.enabled": "false",
        "azureMonitor.enabled": "true",
    }
    engine.delete(EXTENSION, id)


def test_the_extension_needs_the_metrics_pipeline_and_can_be_tried_again(
    aks: str, engine: Engine, cluster: Client, store: Store
) -> None:
    with pytest.raises(grpc.RpcError, match=r'no matches for kind "PodMonitor".*association') as error:
        engine.create(EXTENSION, EXTENSION_INPUTS)
    rpc: Any = error.value
    assert any(key == "grpc-status-details-bin" for key, _ in rpc.trailing_metadata()), (
        "the engine must keep it"
    )
    (failed,) = store.resources(token=EXTENSION)
    assert failed.outputs["provisioningState"] == "Failed"
    _associate(engine, aks)
    assert engine.update(EXTENSION, failed.id, {}, EXTENSION_INPUTS)["provisioningState"] == "Succeeded"
    assert cluster.get(DaemonSet, "gadget", namespace="gadget")
    engine.delete(EXTENSION, failed.id)


def test_the_extension_wants_to_make_its_namespace_itself(
    aks: str, engine: Engine, cluster: Client, store: Store
) -> None:
    _associate(engine, aks)
    cluster.create(Namespace(metadata=ObjectMeta(name="taken")))
    scope = {"cluster": {"releaseNamespace": "taken"}}
    with pytest.raises(grpc.RpcError, match='namespaces "taken" already exists'):
        engine.create(EXTENSION, {**EXTENSION_INPUTS, "scope": scope})
    (failed,) = store.resources(token=EXTENSION)
    engine.delete(EXTENSION, failed.id)
    assert cluster.get(Namespace, "taken"), "what others made must stay"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0.55.0"}, "autoUpgradeMinorVersion"),
        ({"releaseTrain": "stable"}, "preview"),
        ({"extensionType": "microsoft.flux"}, "microsoft.flux"),
    ],
)
def test_an_extension_that_azure_would_refuse_is_refused(
    aks: str, engine: Engine, change: Json, words: str
) -> None:
    with pytest.raises(grpc.RpcError, match=words):
        engine.create(EXTENSION, {**EXTENSION_INPUTS, **change})


def test_a_cluster_does_not_go_while_something_is_connected_to_its_load_balancer(
    aks: str, engine: Engine, store: Store
) -> None:
    cluster = store.resource(aks)
    assert cluster
    service_id = f"{GROUP}/providers/Microsoft.Network/privateLinkServices/pls"
    nodes = f"{GROUP.rpartition('/')[0]}/{cluster.outputs['nodeResourceGroup']}"
    frontend = f"{nodes}/providers/Microsoft.Network/loadBalancers/l"
    outputs = {
        "loadBalancerFrontendIpConfigurations": [{"id": frontend}],
        "privateEndpointConnections": [{"id": "c"}],
    }
    service = Resource(id=service_id, token="azure-native:network:PrivateLinkService", outputs=outputs)
    store.create_resource(service, actor="cloud-controller")
    with pytest.raises(grpc.RpcError, match="has private endpoint connections"):
        engine.delete(CLUSTER, aks)
    store.delete_resource(service_id, actor="cloud-controller")
