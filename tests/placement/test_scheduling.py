# SPDX-License-Identifier: Apache-2.0
"""Where pods land, by the real scheduler and controllers, and how many, by the real quota. The nodes are played."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi_kubernetes as kubernetes
import pytest
from lightkube import Client
from lightkube.models.core_v1 import NodeSpec, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from components.device_plugins import DevicePlugin, DevicePlugins, DevicePluginsArgs, Nodes
from components.gpu_vendors import AMD, GPU_VENDORS, NVIDIA
from components.inspektor_gadget import GADGET_NAMESPACE
from components.profiler_agent import ProfilerAgent, ProfilerAgentArgs
from components.workspaces import Workspace, Workspaces, WorkspacesArgs
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.kubelet import Kubelet
from localcloud.kube.watching import client
from tests.components.recorder import record
from tests.placement.api import Api
from tests.placement.conftest import Guarded
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

POOL_LABEL, ACCELERATOR = "kubernetes.azure.com/agentpool", "kubernetes.azure.com/accelerator"
NODES: dict[str, dict[str, Any]] = {
    "system": {"gpus": {}, "taints": []},
    "nvidia": {"gpus": {"nvidia.com/gpu": "8"}, "taints": [NVIDIA.taint]},
    "cut": {"gpus": {"nvidia.com/mig-1g.10gb": "7"}, "taints": [NVIDIA.taint]},
    "amd": {"gpus": {"amd.com/gpu": "8"}, "taints": [AMD.taint]},
}
TOLERATIONS = {
    vendor.name: {"key": vendor.taint.key, "operator": "Exists", "effect": "NoSchedule"}
    for vendor in GPU_VENDORS
}
SHARES = {"nvidia.com/gpu": 3, "amd.com/gpu": 2, "nvidia.com/mig-1g.10gb": 1}
KINDS = {
    "kubernetes:apps/v1:DaemonSet": ("apps/v1", "DaemonSet"),
    "kubernetes:core/v1:LimitRange": ("v1", "LimitRange"),
    "kubernetes:core/v1:Namespace": ("v1", "Namespace"),
    "kubernetes:core/v1:ResourceQuota": ("v1", "ResourceQuota"),
    "kubernetes:core/v1:ServiceAccount": ("v1", "ServiceAccount"),
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": ("networking.k8s.io/v1", "NetworkPolicy"),
    "kubernetes:scheduling.k8s.io/v1:PriorityClass": ("scheduling.k8s.io/v1", "PriorityClass"),
}
PLUGINS = (("nvidia", NVIDIA, ("nvidia", "cut")), ("amd", AMD, ("amd",)))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    api: Api

    def node_of(self, name: str, namespace: str) -> str:
        """Where the scheduler puts a pod."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        found = wait_for(f"{name} has a node", lambda: self.api.get(path)["spec"].get("nodeName"))
        return str(found)

    def why_it_waits(self, name: str, namespace: str) -> str:
        """What the scheduler says of a pod for which it has no node."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"

        def look() -> str | None:
            conditions = self.api.get(path).get("status", {}).get("conditions", [])
            waiting = [each for each in conditions if each.get("reason") == "Unschedulable"]
            return waiting[0]["message"] if waiting else None

        return str(wait_for(f"{name} is unschedulable", look))

    def nodes_of(self, namespace: str, daemon_set: str, count: int) -> set[str]:
        """Where the pods of a DaemonSet are, when there are so many."""

        def look() -> list[str] | None:
            pods = self.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
            nodes = [
                pod["spec"]["nodeName"]
                for pod in pods
                if pod["metadata"]["ownerReferences"][0]["name"] == daemon_set and "nodeName" in pod["spec"]
            ]
            return nodes if len(nodes) == count else None

        return set(wait_for(f"{count} pods of {daemon_set}", look))


def manifests() -> list[dict[str, Any]]:
    """What the components declare."""

    def program() -> None:
        provider = kubernetes.Provider("cluster")
        plugins = [
            DevicePlugin(
                vendor=vendor,
                strategy="none",
                image="registry.example/plugin",
                nodes=Nodes(label=POOL_LABEL, values=pools),
                taints=(vendor.taint,),
            )
            for _, vendor, pools in PLUGINS
        ]
        DevicePlugins("plugins", DevicePluginsArgs(plugins=plugins, provider=provider, depends_on=[]))
        agent = ProfilerAgentArgs(
            image="registry.example/agent",
            pyroscope_url="http://pyroscope:4040",
            cluster_name="test",
            node_selector=NVIDIA.node_labels,
            provider=provider,
            depends_on=[],
        )
        ProfilerAgent("agent", agent)
        workspace = Workspace(
            name="research",
            pod_security="baseline",
            gpus=SHARES,
            container_requests={"cpu": "100m"},
            container_limits={"memory": "1Gi"},
            priority=1000,
        )
        Workspaces("workspaces", WorkspacesArgs(workspaces=[workspace], provider=provider, depends_on=[]))

    made = [
        {"apiVersion": KINDS[each.type][0], "kind": KINDS[each.type][1], **_whole(each.inputs)}
        for each in record(program).resources.values()
        if each.type in KINDS
    ]
    return sorted(made, key=lambda manifest: manifest["kind"] != "Namespace")


def _whole(value: Any) -> Any:
    """Whole numbers, as the program wrote them: the SDK's messages know floating ones only."""
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def gadget() -> dict[str, Any]:
    """Inspektor Gadget's DaemonSet as its chart has it: it tolerates everything."""
    labels = {"k8s-app": "gadget"}
    spec = {
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute"},
        ],
        "containers": [{"name": "gadget", "image": "registry.example/gadget"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gadget", "namespace": GADGET_NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@pytest.fixture(scope="module")
def cluster(guarded: Guarded) -> Iterator[Cluster]:
    kubelet = Kubelet(client(guarded.control_plane.kubeconfig))
    kubelet.start()
    add_nodes(guarded.control_plane)
    for manifest in [*manifests(), gadget()]:
        answer = guarded.api.create(manifest)
        # The account `default` is made by a controller: the stack takes it over by server-side apply.
        assert answer.accepted or "already exists" in answer.message, answer.message
    yield Cluster(api=guarded.api)
    kubelet.stop()


def add_nodes(control_plane: ControlPlane) -> None:
    kubernetes_client: Client = client(control_plane.kubeconfig)
    for name, node in NODES.items():
        taints = [Taint(key=each.key, value=each.value, effect=each.effect) for each in node["taints"]]
        vendor = next((each.partition(".")[0] for each in node["gpus"]), None)
        labels = {POOL_LABEL: name} | ({ACCELERATOR: vendor} if vendor else {})
        kubernetes_client.create(
            Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints))
        )
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", **node["gpus"]}
        kubernetes_client.patch(
            Node.Status, name, {"status": {"capacity": capacity, "allocatable": capacity}}
        )


def pod(
    name: str, gpus: dict[str, int] | None = None, namespace: str = "work", **spec: Any
) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/image", "resources": {"limits": gpus or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], **spec},
    }


@pytest.mark.parametrize(
    ("resource", "vendor", "node"),
    [
        ("nvidia.com/gpu", "nvidia", "nvidia"),
        ("nvidia.com/mig-1g.10gb", "nvidia", "cut"),
        ("amd.com/gpu", "amd", "amd"),
    ],
)
def test_a_pod_with_a_gpu_lands_where_it_is_offered(
    cluster: Cluster, resource: str, vendor: str, node: str
) -> None:
    name = f"asks-{node}"
    answer = cluster.api.create(pod(name, {resource: 1}, tolerations=[TOLERATIONS[vendor]]))
    assert answer.accepted, answer.message
    assert cluster.node_of(name, "work") == node


def test_a_pod_with_a_gpu_goes_nowhere_else_when_there_is_none_left(cluster: Cluster) -> None:
    greedy = pod("greedy", {"nvidia.com/gpu": 9}, tolerations=[TOLERATIONS["nvidia"]])
    assert cluster.api.create(greedy).accepted
    assert "Insufficient nvidia.com/gpu" in cluster.why_it_waits("greedy", "work")


def test_ordinary_pods_never_land_on_gpu_nodes(cluster: Cluster) -> None:
    names = [f"ordinary-{number}" for number in range(20)]
    for name in names:
        assert cluster.api.create(pod(name)).accepted
    assert {cluster.node_of(name, "work") for name in names} == {"system"}


def test_an_ordinary_pod_waits_when_only_gpu_nodes_are_left(cluster: Cluster) -> None:
    elsewhere = pod("elsewhere", nodeSelector={ACCELERATOR: "nvidia"})
    assert cluster.api.create(elsewhere).accepted
    assert "untolerated taint" in cluster.why_it_waits("elsewhere", "work")


@pytest.mark.parametrize(("vendor", "nodes"), [("nvidia", {"nvidia", "cut"}), ("amd", {"amd"})])
def test_the_device_plugin_is_on_each_node_of_its_vendor(
    cluster: Cluster, vendor: str, nodes: set[str]
) -> None:
    name = f"{vendor}-device-plugin"
    assert cluster.nodes_of("gpu-device-plugins", name, len(nodes)) == nodes


def test_the_agent_is_on_each_node_that_it_can_trace(cluster: Cluster) -> None:
    assert cluster.nodes_of("gpuheap", "gpuheap-agent", 2) == {"nvidia", "cut"}


def test_inspektor_gadget_is_on_every_node(cluster: Cluster) -> None:
    assert cluster.nodes_of(GADGET_NAMESPACE, "gadget", 4) == set(NODES)


@pytest.mark.parametrize("resource", sorted(SHARES))
def test_the_quota_refuses_the_first_gpu_above_the_share(cluster: Cluster, resource: str) -> None:
    tolerations = [TOLERATIONS[resource.partition(".")[0]]]
    name = resource.replace("/", "-").replace(".", "-")
    pods = [
        pod(f"{name}-{number}", {resource: 1}, namespace="research", tolerations=tolerations)
        for number in range(SHARES[resource] + 1)
    ]
    answers = [cluster.api.create(each) for each in pods]
    assert [answer.accepted for answer in answers] == [True] * SHARES[resource] + [False]
    assert f"exceeded quota: gpus, requested: requests.{resource}=1" in answers[-1].message
    assert f"limited: requests.{resource}={SHARES[resource]}" in answers[-1].message


def test_a_pod_without_numbers_gets_the_workspaces_defaults(cluster: Cluster) -> None:
    assert cluster.api.create(pod("plain", namespace="research")).accepted
    (container,) = cluster.api.get("/api/v1/namespaces/research/pods/plain")["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }


def test_a_pod_of_the_workspaces_priority_has_its_value(cluster: Cluster) -> None:
    assert cluster.api.create(pod("urgent", namespace="research", priorityClassName="research")).accepted
    assert cluster.api.get("/api/v1/namespaces/research/pods/urgent")["spec"]["priority"] == 1000


def test_a_pod_of_the_workspaces_account_gets_no_token(cluster: Cluster) -> None:
    assert cluster.api.create(pod("quiet", namespace="research", serviceAccountName="workload")).accepted
    spec = cluster.api.get("/api/v1/namespaces/research/pods/quiet")["spec"]
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]


def test_a_privileged_pod_is_refused_by_the_workspaces_pod_security(cluster: Cluster) -> None:
    privileged = pod("privileged", namespace="research", hostPID=True)
    assert 'violates PodSecurity "baseline:latest": host namespaces' in cluster.api.create(privileged).message


def test_a_deployments_refused_pod_would_be_seen_at_the_deployment(cluster: Cluster) -> None:
    labels = {"app": "late"}
    late = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "late", "namespace": "research"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x", {"nvidia.com/gpu": 1})["spec"]},
        },
    }
    answer = cluster.api.create(late)
    assert 'deployments.apps "late" is forbidden' in answer.message
    assert "Add to spec.template.spec: tolerations:" in answer.message
