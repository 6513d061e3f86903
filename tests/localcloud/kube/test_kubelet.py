# SPDX-License-Identifier: Apache-2.0
"""What the real controllers and the real scheduler make of the simulated kubelets."""

from collections.abc import Callable
from typing import Any

from lightkube import ApiError, Client
from lightkube.models.apps_v1 import DaemonSetSpec, DeploymentSpec
from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec, Taint, Toleration
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Namespace, Node, Pod

from localcloud.kube.gpus import Gpus

GPU_TAINT = Taint(key="sku", value="gpu", effect="NoSchedule")
LABELS = {"app": "test"}


def template(**spec: Any) -> PodTemplateSpec:
    containers = [Container(name="main", image="example.test/main:1")]
    return PodTemplateSpec(metadata=ObjectMeta(labels=LABELS), spec=PodSpec(containers=containers, **spec))


def deployment(namespace: str, replicas: int, **spec: Any) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name="test", namespace=namespace),
        spec=DeploymentSpec(
            replicas=replicas, selector=LabelSelector(matchLabels=LABELS), template=template(**spec)
        ),
    )


def available(cluster: Client, namespace: str) -> int:
    status = cluster.get(Deployment, "test", namespace=namespace).status
    return (status and status.availableReplicas) or 0


def pods(cluster: Client, namespace: str) -> list[Pod]:
    return list(cluster.list(Pod, namespace=namespace))


def test_a_deployment_becomes_available_with_an_address_for_each_pod(
    cluster: Client, namespace: str, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    add_node(labels={"pool": namespace})
    cluster.create(deployment(namespace, 3, nodeSelector={"pool": namespace}))
    waiting("three pods available", lambda: available(cluster, namespace) == 3)
    addresses = {pod.status.podIP for pod in pods(cluster, namespace) if pod.status}
    assert len(addresses) == 3
    assert None not in addresses


def test_a_deleted_pod_goes_and_is_replaced(
    cluster: Client, namespace: str, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    add_node(labels={"pool": namespace})
    cluster.create(deployment(namespace, 1, nodeSelector={"pool": namespace}))
    waiting("one pod available", lambda: available(cluster, namespace) == 1)
    old = pods(cluster, namespace)[0].metadata
    assert old
    cluster.delete(Pod, str(old.name), namespace=namespace)

    def replaced() -> bool:
        uids = [pod.metadata.uid for pod in pods(cluster, namespace) if pod.metadata]
        return len(uids) == 1 and uids != [old.uid] and available(cluster, namespace) == 1

    waiting("another pod in its place", replaced)


def test_a_job_completes(
    cluster: Client, namespace: str, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    add_node(labels={"pool": namespace})
    pod = template(restartPolicy="Never", nodeSelector={"pool": namespace})
    cluster.create(Job(metadata=ObjectMeta(name="test", namespace=namespace), spec=JobSpec(template=pod)))

    def complete() -> bool:
        status = cluster.get(Job, "test", namespace=namespace).status
        conditions = (status and status.conditions) or []
        return any(each.type == "Complete" and each.status == "True" for each in conditions)

    waiting("the Job complete", complete)


def test_a_daemon_set_with_the_toleration_runs_on_the_tainted_node_only(
    cluster: Client, namespace: str, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    add_node(labels={"pool": namespace})
    gpu_node = add_node(labels={"pool": namespace, "gpu": "yes"}, gpus=1, taints=[GPU_TAINT])
    tolerant = Toleration(key="sku", operator="Exists", effect="NoSchedule")
    for name, spec in {"tolerant": {"tolerations": [tolerant]}, "other": {}}.items():
        selector = {"pool": namespace, "gpu": "yes"}
        cluster.create(
            DaemonSet(
                metadata=ObjectMeta(name=name, namespace=namespace),
                spec=DaemonSetSpec(
                    selector=LabelSelector(matchLabels=LABELS),
                    template=template(nodeSelector=selector, **spec),
                ),
            )
        )

    def counts(name: str) -> tuple[int, int] | None:
        status = cluster.get(DaemonSet, name, namespace=namespace).status
        if status is None or status.observedGeneration is None:
            return None
        return status.desiredNumberScheduled, status.numberReady

    waiting("the tolerant one ready", lambda: counts("tolerant") == (1, 1))
    assert waiting("the other one looked at", lambda: counts("other")) == (0, 0)
    assert [pod.spec.nodeName for pod in pods(cluster, namespace) if pod.spec] == [gpu_node]


def test_a_node_becomes_ready_and_has_a_lease(
    cluster: Client, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    name = add_node(labels={})

    def ready() -> bool:
        node = cluster.get(Node, name)
        conditions = (node.status and node.status.conditions) or []
        taints = (node.spec and node.spec.taints) or []
        return any(each.type == "Ready" and each.status == "True" for each in conditions) and not taints

    waiting("the Node ready and without the taint not-ready", ready)
    lease = waiting("its lease", lambda: _lease(cluster, name))
    assert lease.spec.holderIdentity == name


def test_the_pods_of_a_deleted_node_go_with_it(
    cluster: Client, namespace: str, waiting: Callable[..., Any]
) -> None:
    name = f"{namespace}-lost"
    cluster.create(Node(metadata=ObjectMeta(name=name)))
    containers = [Container(name="main", image="example.test/main:1")]
    cluster.create(
        Pod(
            metadata=ObjectMeta(name="lonely", namespace=namespace),
            spec=PodSpec(containers=containers, nodeName=name),
        )
    )
    waiting(
        "the pod running",
        lambda: [each.status.phase for each in pods(cluster, namespace) if each.status] == ["Running"],
    )
    cluster.delete(Node, name)
    waiting("the pod gone", lambda: not pods(cluster, namespace))


def test_a_namespace_with_pods_can_be_deleted(
    cluster: Client, namespace: str, add_node: Callable[..., str], waiting: Callable[..., Any]
) -> None:
    add_node(labels={"pool": namespace})
    cluster.create(deployment(namespace, 1, nodeSelector={"pool": namespace}))
    waiting("one pod available", lambda: available(cluster, namespace) == 1)
    cluster.delete(Namespace, namespace)
    waiting(
        "the namespace gone",
        lambda: namespace not in {each.metadata.name for each in cluster.list(Namespace) if each.metadata},
    )


def _lease(cluster: Client, name: str) -> Lease | None:
    try:
        return cluster.get(Lease, name, namespace="kube-node-lease")
    except ApiError as error:
        if error.status.code == 404:
            return None
        raise


def test_gpus_can_be_asked_for_while_a_device_plugin_runs(
    cluster: Client,
    namespace: str,
    add_node: Callable[..., str],
    device_plugin: Callable[..., None],
    waiting: Callable[..., Any],
) -> None:
    node = add_node(
        labels={"pool": namespace}, hidden=Gpus(vendor="nvidia", count=2, slices=7, slice="1g.10gb")
    )

    def slices() -> str | None:
        status = cluster.get(Node, node).status
        assert status
        assert status.allocatable
        assert "nvidia.com/gpu" not in status.allocatable
        return status.allocatable.get("nvidia.com/mig-1g.10gb")

    assert slices() is None
    device_plugin(namespace, label="pool", strategy="mixed")
    waiting("slices", lambda: slices() == "14")
    (plugin,) = cluster.list(DaemonSet, namespace=namespace)
    assert plugin.metadata
    assert plugin.metadata.name
    cluster.delete(DaemonSet, plugin.metadata.name, namespace=namespace)
    waiting("no slices", lambda: slices() == "0")
