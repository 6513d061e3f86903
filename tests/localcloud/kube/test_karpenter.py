# SPDX-License-Identifier: Apache-2.0
"""The played Karpenter, on a real API server with a real scheduler; and the rules of its kinds there."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from lightkube import ApiError, Client
from lightkube.models.core_v1 import Container, PodSpec, ResourceRequirements, Toleration
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod

from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.azure.types_cluster import CLUSTER
from localcloud.kube import karpenter_crds
from localcloud.kube.karpenter import POOL_LABEL, Karpenter
from localcloud.kube.karpenter_crds import NODE_POOL

_numbers = count(1)
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SPOT = "kubernetes.azure.com/scalesetpriority"


@pytest.fixture(scope="module")
def kubernetes(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a cluster with Karpenter."""
    store = Store(tmp_path_factory.mktemp("karpenter") / "store.db")
    outputs = {"nodeResourceGroup": "aks-nodes", "location": "westeurope", "sku": {"name": "Automatic"}}
    id = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/aks"
    store.put_resource(Resource(id=id, token=CLUSTER, outputs=outputs), actor="test")
    karpenter_crds.install(cluster)
    loop = Karpenter(cluster, store)
    loop.start()
    yield cluster
    loop.stop()
    karpenter_crds.remove(cluster)
    store.close()


def spec(size: str = "Standard_NC48ads_A100_v4", gpus: int = 4, **template: Any) -> dict[str, Any]:
    return {
        "template": {
            "metadata": {"labels": template.pop("labels", {})},
            "spec": {
                "nodeClassRef": {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "gpu"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [size]}
                ],
                "taints": [GPU_TAINT],
                **template,
            },
        },
        "limits": {"nvidia.com/gpu": str(gpus)},
    }


@pytest.fixture
def node_pool(kubernetes: Client) -> Iterator[Callable[..., str]]:
    """Makes NodePools that go with the test, and their nodes with them.

    By themselves the nodes would go, too, as the engine's tests show; but a cluster that has just learned of a kind
    takes half a minute to see that.
    """
    names: list[str] = []

    def make(wanted: dict[str, Any]) -> str:
        name = f"pool-{next(_numbers)}"
        kubernetes.create(NODE_POOL(metadata=ObjectMeta(name=name), spec=wanted))
        names.append(name)
        return name

    yield make
    for name in names:
        kubernetes.delete(NODE_POOL, name)
        for node in nodes(kubernetes, name):
            assert node.metadata and node.metadata.name
            with suppress(ApiError):  # it went with its pool
                kubernetes.delete(Node, node.metadata.name)


def nodes(kubernetes: Client, pool: str) -> list[Node]:
    return list(kubernetes.list(Node, labels={POOL_LABEL: pool}))


def pod(namespace: str, gpus: int, *tolerated: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=f"pod-{next(_numbers)}", namespace=namespace),
        spec=PodSpec(
            containers=[
                Container(
                    name="work",
                    image="work",
                    resources=ResourceRequirements(limits={"nvidia.com/gpu": str(gpus)}),
                )
            ],
            tolerations=[Toleration(key=key, operator="Exists") for key in tolerated],
        ),
    )


def test_a_pod_that_fits_brings_a_node_and_runs_there(
    kubernetes: Client,
    namespace: str,
    node_pool: Callable[..., str],
    waiting: Callable[..., Any],
    device_plugin: Callable[..., None],
) -> None:
    pool = node_pool(spec(labels={"team": "research"}))
    device_plugin("research", label="team")
    made = kubernetes.create(pod(namespace, 2, "nvidia.com/gpu"))
    assert made.metadata and made.metadata.name
    name = made.metadata.name

    def runs_on() -> str | None:
        found = kubernetes.get(Pod, name, namespace=namespace)
        return found.spec.nodeName if found.spec else None

    place = waiting("the pod to have a node", runs_on)
    (node,) = nodes(kubernetes, pool)
    assert node.metadata and node.metadata.name == place
    assert node.metadata.labels and node.metadata.labels["team"] == "research"
    assert node.status and node.status.capacity and node.status.capacity["nvidia.com/gpu"] == "2"


def test_a_full_node_brings_another_until_the_limit(
    kubernetes: Client,
    namespace: str,
    node_pool: Callable[..., str],
    waiting: Callable[..., Any],
    device_plugin: Callable[..., None],
) -> None:
    pool = node_pool(spec(gpus=4))
    device_plugin(pool, label=POOL_LABEL)
    for _ in range(3):
        kubernetes.create(pod(namespace, 2, "nvidia.com/gpu"))

    def phases() -> list[str]:
        return sorted(
            str(each.status and each.status.phase)
            for each in kubernetes.list(Pod, namespace=namespace)
            if each.metadata and str(each.metadata.name).startswith("pod-")
        )

    waiting("two pods to run", lambda: phases() == ["Pending", "Running", "Running"])
    assert len(nodes(kubernetes, pool)) == 2


def test_a_pod_that_does_not_tolerate_every_taint_brings_no_node(
    kubernetes: Client, namespace: str, node_pool: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    spot = node_pool(spec(taints=[GPU_TAINT, {"key": SPOT, "value": "spot", "effect": "NoSchedule"}]))
    kubernetes.create(pod(namespace, 1, "nvidia.com/gpu"))
    # The first pod was seen before the second: when that one has a node, the first one has been left without.
    other = node_pool(spec(size="Standard_ND96isr_H100_v5", gpus=8))
    kubernetes.create(pod(namespace, 8, "nvidia.com/gpu"))
    waiting("the other pool's node", lambda: nodes(kubernetes, other))
    assert not nodes(kubernetes, spot)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"labels": {"kubernetes.azure.com.karpenter.azure.com/a": "b"}}, "karpenter.azure.com"),
        ({"labels": {"kubernetes.io/hostname": "a"}}, "kubernetes.io"),
        ({"taints": [{"key": SPOT, "value": "spot", "effect": "NoExecute"}]}, "scalesetpriority"),
        ({"taints": [{"key": "kubernetes.azure.com/mine", "effect": "NoSchedule"}]}, "is restricted"),
        (
            {"requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": []}]},
            "must have a value",
        ),
        ({"expireAfter": "soon"}, "expireAfter"),
    ],
)
def test_what_karpenter_refuses_is_refused(
    node_pool: Callable[..., str], template: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        node_pool(spec(**template))
