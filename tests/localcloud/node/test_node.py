# SPDX-License-Identifier: Apache-2.0
"""Pods on a real node run, print, fail and are probed, beside simulated nodes whose pods only seem to run."""

import base64
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from lightkube.models.apps_v1 import DaemonSetSpec
from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import Container, NodeSpec, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Node, Pod

from tests.localcloud.node.conftest import NAME, TOOLS, NodeCluster
from tests.localcloud.node.pod_network import in_network_of
from tests.waiting import wait_for


def uid(pod: Pod) -> str:
    assert pod.metadata
    assert pod.metadata.uid
    return pod.metadata.uid


def running(node_cluster: NodeCluster, pod: Pod, command_line: str) -> int | None:
    """The process of a pod that runs that; a container counts as Running just before its command does."""
    for pid in node_cluster.node.processes(uid(pod)):
        try:
            found = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        except (FileNotFoundError, ProcessLookupError):  # a probe's, which has ended
            continue
        if found == command_line:
            return pid
    return None


def test_the_node_is_of_the_control_planes_version_and_runs_containerd(node_cluster: NodeCluster) -> None:
    node = node_cluster.kubernetes.get(Node, NAME)
    assert node.status
    assert node.status.nodeInfo
    assert node.status.nodeInfo.kubeletVersion == "v1.36.3"
    assert node.status.nodeInfo.containerRuntimeVersion.startswith("containerd://")
    assert node.metadata
    assert (node.metadata.labels or {})["agentpool"] == "gpu"


def test_what_a_pod_prints_is_its_log(node_cluster: NodeCluster) -> None:
    pod = node_cluster.pod(
        node_cluster.namespace(), "speaks", "sh", "-c", "echo $((6 * 7))", restartPolicy="Never"
    )
    node_cluster.wait_for_phase(pod, "Succeeded")
    assert node_cluster.log(pod) == "42\n"


def test_a_running_pod_is_a_process_of_this_machine_until_it_is_deleted(node_cluster: NodeCluster) -> None:
    pod = node_cluster.pod(node_cluster.namespace(), "sleeps", "sleep", "4242")
    node_cluster.wait_for_phase(pod, "Running")
    wait_for("process", lambda: running(node_cluster, pod, "sleep 4242"))
    assert pod.metadata
    assert pod.metadata.name
    node_cluster.kubernetes.delete(Pod, pod.metadata.name, namespace=pod.metadata.namespace)
    wait_for("its end", lambda: not node_cluster.node.processes(uid(pod)))


def test_a_job_fails_with_the_exit_code_of_its_process(node_cluster: NodeCluster) -> None:
    namespace = node_cluster.namespace()
    container = Container(name="main", image=TOOLS, command=["sh", "-c", "echo no driver; exit 3"])
    spec = PodSpec(
        containers=[container], restartPolicy="Never", nodeSelector={"kubernetes.io/hostname": NAME}
    )
    job = Job(
        metadata=ObjectMeta(name="fails", namespace=namespace),
        spec=JobSpec(backoffLimit=0, template=PodTemplateSpec(spec=spec)),
    )
    node_cluster.kubernetes.create(job)

    def failed() -> bool:
        status = node_cluster.kubernetes.get(Job, "fails", namespace=namespace).status
        return any(each.type == "Failed" for each in (status and status.conditions) or [])

    wait_for("Failed", failed)
    (pod,) = node_cluster.kubernetes.list(Pod, namespace=namespace)
    assert pod.status
    assert pod.status.containerStatuses
    state = pod.status.containerStatuses[0].state
    assert state
    assert state.terminated
    assert state.terminated.exitCode == 3
    assert node_cluster.log(pod) == "no driver\n"


def test_a_daemon_set_lands_on_it_and_on_simulated_nodes_and_runs_on_it_alone(
    node_cluster: NodeCluster,
) -> None:
    namespace = node_cluster.namespace()
    node_cluster.kubernetes.create(Node(metadata=ObjectMeta(name="simulated"), spec=NodeSpec()))
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    node_cluster.kubernetes.patch(
        Node.Status, "simulated", {"status": {"capacity": capacity, "allocatable": capacity}}
    )
    labels = {"app": "everywhere"}
    container = Container(name="main", image=TOOLS, command=["sleep", "777"])
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels),
        spec=PodSpec(containers=[container], terminationGracePeriodSeconds=0),
    )
    node_cluster.kubernetes.create(
        DaemonSet(
            metadata=ObjectMeta(name="everywhere", namespace=namespace),
            spec=DaemonSetSpec(selector=LabelSelector(matchLabels=labels), template=template),
        )
    )

    def ready() -> bool:
        status = node_cluster.kubernetes.get(DaemonSet, "everywhere", namespace=namespace).status
        return bool(status and status.numberReady == 2)

    wait_for("two ready pods", ready)
    by_node = {
        pod.spec.nodeName: pod for pod in node_cluster.kubernetes.list(Pod, namespace=namespace) if pod.spec
    }
    assert set(by_node) == {NAME, "simulated"}
    wait_for("process", lambda: running(node_cluster, by_node[NAME], "sleep 777"))
    assert node_cluster.node.processes(uid(by_node["simulated"])) == []
    node_cluster.kubernetes.delete(Node, "simulated")


def test_a_pod_is_not_ready_before_its_probe_says_so(node_cluster: NodeCluster) -> None:
    probe = {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}
    pod = node_cluster.pod(
        node_cluster.namespace(), "probed", "sleep", "1000", container={"readinessProbe": probe}
    )
    node_cluster.wait_for_phase(pod, "Running")
    assert not is_ready(node_cluster, pod)
    main = wait_for("process", lambda: running(node_cluster, pod, "sleep 1000"))
    (Path("/proc") / str(main) / "root" / "tmp" / "ready").touch()
    wait_for("Ready", lambda: is_ready(node_cluster, pod))


def is_ready(node_cluster: NodeCluster, pod: Pod) -> bool:
    assert pod.metadata
    assert pod.metadata.name
    status = node_cluster.kubernetes.get(Pod, pod.metadata.name, namespace=pod.metadata.namespace).status
    conditions = (status and status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def test_a_pod_reaches_the_api_server_by_its_service_and_is_known_by_its_token(
    node_cluster: NodeCluster,
) -> None:
    pod = node_cluster.pod(node_cluster.namespace(), "asks", "sleep", "1000")
    node_cluster.wait_for_phase(pod, "Running")
    folder = "var/run/secrets/kubernetes.io/serviceaccount"
    process = node_cluster.node.processes(uid(pod))[-1]
    secrets = next(
        found
        for pid in node_cluster.node.processes(uid(pod))
        if (found := (Path("/proc") / str(pid) / "root" / folder)).exists()
    )
    token = (secrets / "token").read_text()
    context = ssl.create_default_context(cadata=(secrets / "ca.crt").read_text())

    def ask(path: str) -> int:
        request = urllib.request.Request(
            f"https://10.96.0.1{path}", headers={"Authorization": f"Bearer {token}"}
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            return int(opener.open(request, timeout=10).status)
        except urllib.error.HTTPError as error:
            return error.code

    assert in_network_of(process, lambda: (ask("/version"), ask("/api/v1/nodes"))) == (200, 403)


def test_the_kubelet_may_not_touch_other_nodes(node_cluster: NodeCluster) -> None:
    config = yaml.safe_load(node_cluster.control_plane.kubeconfig_of(node_cluster.node.user).read_text())
    token = config["users"][0]["user"]["token"]
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    request = urllib.request.Request(
        f"{node_cluster.control_plane.url}/api/v1/nodes/other",
        method="DELETE",
        headers={"Authorization": f"Bearer {token}"},
    )
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority)),
    )
    with pytest.raises(urllib.error.HTTPError) as refusal:
        opener.open(request, timeout=10)
    assert refusal.value.code == 403
