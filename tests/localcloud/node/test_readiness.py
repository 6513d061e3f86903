# SPDX-License-Identifier: Apache-2.0
"""The stack's readiness checks on a real, tainted node: good and bad drivers of both vendors, slices, `up`."""

from collections.abc import Iterator
from typing import Any

import pulumi_kubernetes as kubernetes
import pytest
import yaml
from lightkube import ApiError, codecs
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Namespace, Pod, ResourceQuota

from components import readiness
from components.gpu_vendors import AMD, GPU_VENDORS, NVIDIA, GpuVendor
from components.readiness import PoolCheck, Readiness, ReadinessArgs
from tests.localcloud.node.conftest import NAME, TOOLS, NodeCluster
from tests.localcloud.node.pool import GOOD, NODES, Pool, declared, gpus, plugged, tainted
from tests.localcloud.plugin.conftest import CHECKOUT, MakeProject, Project, make_project
from tests.waiting import wait_for

__all__ = ["make_project"]

MINIMUM = {NVIDIA: "550.54.15", AMD: "6.10.5"}
OLD = {
    NVIDIA: "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, Tesla T4, 535.54.03",
    AMD: "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.7.0",
}
LOST = "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, [GPU is lost], [GPU is lost]"


def check(pool: Pool, resource: str) -> tuple[str, str]:
    """How the check of the pool ended, and what it says."""
    cluster, namespace = pool.cluster, pool.cluster.namespace()
    (manifest,) = declared(
        lambda provider: Readiness("readiness", readiness_of(pool.vendor, resource, provider)),
        "kubernetes:batch/v1:Job",
        "Job",
    )
    manifest["metadata"]["namespace"] = namespace
    name = manifest["metadata"]["name"]
    cluster.kubernetes.create(codecs.from_dict(manifest))

    def ended() -> tuple[str, str] | None:
        status = cluster.kubernetes.get(Job, name, namespace=namespace).status
        for condition in (status and status.conditions) or []:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return condition.type, condition.reason or ""
        return None

    type_, reason = wait_for("the end of the check", ended)
    return type_ if type_ == "Complete" else reason, said(cluster, namespace)


def said(cluster: NodeCluster, namespace: str) -> str:
    for pod in cluster.kubernetes.list(Pod, namespace=namespace):
        if pod.status and pod.status.phase in ("Succeeded", "Failed"):
            return cluster.log(pod)
    events = cluster.kubernetes.list(Event, namespace=namespace)
    return "\n".join(event.message or "" for event in events)


def readiness_of(vendor: GpuVendor, resource: str, provider: kubernetes.Provider) -> ReadinessArgs:
    check = PoolCheck(
        pool="gpu",
        vendor=vendor,
        resource=resource,
        nodes=NODES,
        count=1,
        taints=(vendor.taint,),
        minimum_driver=MINIMUM[vendor],
        image=TOOLS,
    )
    return ReadinessArgs(checks=[check], provider=provider, depends_on=[])


@pytest.fixture(scope="module", params=GPU_VENDORS, ids=lambda vendor: vendor.name)
def pool(node_cluster: NodeCluster, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """NVIDIA's with the plugin for slices: it offers whole GPUs, too, on a node that is not cut."""
    vendor: GpuVendor = request.param
    with plugged(node_cluster, vendor, "mixed") as pool:
        yield pool


nvidia_alone = pytest.mark.parametrize("pool", [NVIDIA], indirect=True, ids=["nvidia"])


def test_a_good_node_passes_and_says_its_driver(pool: Pool) -> None:
    pool.becomes(gpus(pool.vendor, GOOD[pool.vendor]))
    outcome, said = check(pool, pool.vendor.whole)
    assert outcome == "Complete", said
    driver = {NVIDIA: "550.144.03", AMD: "6.12.12"}[pool.vendor]
    assert said.startswith(f"node {NAME} is ready: driver {driver}\n")


def test_a_node_of_slices_passes_by_their_name_and_by_no_other(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {NVIDIA: "1g.10gb", AMD: "cpx_nps4"}[pool.vendor]
    pool.becomes(gpus(pool.vendor, GOOD[pool.vendor], slices=2, slice=part))
    (resource,) = pool.offers()
    outcome, said = check(pool, resource)
    assert outcome == "Complete", said
    monkeypatch.setattr(readiness, "DEADLINE_SECONDS", 1)
    outcome, said = check(pool, pool.vendor.whole)
    assert outcome == "DeadlineExceeded"
    assert f"Insufficient {pool.vendor.whole}" in said


def test_an_old_driver_fails_and_says_which_would_do(pool: Pool) -> None:
    pool.becomes(gpus(pool.vendor, OLD[pool.vendor]))
    outcome, said = check(pool, pool.vendor.whole)
    assert outcome == "BackoffLimitExceeded"
    driver = {NVIDIA: "535.54.03", AMD: "6.7.0"}[pool.vendor]
    assert f"its driver is {driver}, and {MINIMUM[pool.vendor]} is the oldest that will do" in said


def test_a_driver_that_containers_do_not_see_fails(pool: Pool) -> None:
    pool.becomes(gpus(pool.vendor, None))
    outcome, said = check(pool, pool.vendor.whole)
    assert outcome == "BackoffLimitExceeded"
    assert f"there is no {pool.vendor.name}-smi" in said


@pytest.mark.parametrize("hardware", ["no driver", "one unhealthy GPU"])
def test_a_node_that_offers_no_gpu_fails_at_the_deadline(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, hardware: str
) -> None:
    monkeypatch.setattr(readiness, "DEADLINE_SECONDS", 1)
    unhealthy = gpus(pool.vendor, GOOD[pool.vendor], unhealthy=("GPU-0",))
    pool.becomes(None if hardware == "no driver" else unhealthy)
    outcome, said = check(pool, pool.vendor.whole)
    assert outcome == "DeadlineExceeded"
    assert f"Insufficient {pool.vendor.whole}" in said


@nvidia_alone  # how amd-smi shows one is not known
def test_a_gpu_that_is_lost_fails(pool: Pool) -> None:
    pool.becomes(gpus(NVIDIA, LOST))
    outcome, said = check(pool, NVIDIA.whole)
    assert outcome == "BackoffLimitExceeded"
    assert "a GPU does not answer" in said


PROGRAM = f"""
import sys
from types import SimpleNamespace

import pulumi_kubernetes as kubernetes

sys.path.insert(0, "{CHECKOUT}")
from components import readiness as checks
from components import wiring
from components.config import load

config = load()
checks.DEADLINE_SECONDS = int(config.tags["deadline"])
cluster = SimpleNamespace(provider=kubernetes.Provider("cluster"), ready=[])
workspaces = wiring.workspaces(config, cluster)
plugins = wiring.device_plugins(config, cluster, [])
readiness = wiring.readiness(config, cluster, after=plugins)
wiring.sample_workload(config, cluster, after=[*workspaces, *readiness])
"""
CONFIGURATION: dict[str, Any] = {
    "azure-native:location": "westeurope",
    "small:profilers": ["inspektor-gadget"],
    "small:cluster": {"existing": {"name": "real", "resourceGroup": "real"}},
    "small:gpuPools": [
        {
            "name": "gpu",
            "vmSize": "Standard_NC24ads_A100_v4",
            "mig": {"profile": "3g", "strategy": "mixed"},
        }
    ],
    "small:devices": {"checkImage": {"nvidia": TOOLS}, "minimumDriver": {"nvidia": MINIMUM[NVIDIA]}},
    "small:workspaces": [
        {"name": "real-work", "containerDefaults": {"cpuRequest": "10m", "memoryRequest": "16Mi"}}
    ],
    "small:sampleWorkload": {
        "image": TOOLS,
        "command": ["sh", "-c", "nvidia-smi; sleep 1000"],
        "pool": "gpu",
        "workspace": "real-work",
    },
}
HALVES: dict[str, Any] = {"slices": 2, "slice": "3g.40gb"}


@pytest.mark.engine
@pytest.mark.usefixtures("prepared")
def test_up_fails_with_what_is_wrong_and_starts_no_workload_until_the_driver_is_good(
    node_cluster: NodeCluster, make_project: MakeProject
) -> None:
    """All of the stack that concerns nodes, on a node of slices: without a driver, with an old one, with a good one."""
    project = make_project(PROGRAM)
    project.environment["KUBECONFIG"] = str(node_cluster.control_plane.kubeconfig)
    with tainted(node_cluster, NVIDIA):
        # Long enough for the plugin to start, were there something to offer.
        printed = refused(project, deadline=5)
        assert "the nodes of pool gpu are not ready: within 5 s not all of them ran the check" in printed
        assert "asks for one nvidia.com/mig-3g.40gb" in printed
        node_cluster.node.set_gpus(gpus(NVIDIA, OLD[NVIDIA], **HALVES))
        printed = refused(project)
        assert f"node {NAME} is not ready: its driver is 535.54.03, and 550.54.15 is the oldest" in printed
        with pytest.raises(ApiError, match="not found"):
            node_cluster.kubernetes.get(Deployment, "gpu-sample", namespace="real-work")
        node_cluster.node.set_gpus(gpus(NVIDIA, GOOD[NVIDIA], **HALVES))
        project.succeed("up", "--yes", "--skip-preview")
        (sample,) = node_cluster.kubernetes.list(Pod, namespace="real-work")
        wait_for("its words", lambda: "550.144.03" in node_cluster.log(sample))
        quota = node_cluster.kubernetes.get(ResourceQuota, "gpus", namespace="real-work").status
        assert quota
        assert (quota.used or {})["requests.nvidia.com/mig-3g.40gb"] == "1"
        for namespace in ("real-work", "gpu-device-plugins", "gpu-readiness"):
            node_cluster.kubernetes.delete(Namespace, namespace)


def refused(project: Project, deadline: int = readiness.DEADLINE_SECONDS) -> str:
    """What an `up` printed that must not succeed."""
    config = {**CONFIGURATION, "small:tags": {"deadline": str(deadline)}}
    (project.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    code, printed = project.run("up", "--yes", "--skip-preview")
    assert code != 0, printed
    return printed
