# SPDX-License-Identifier: Apache-2.0
"""The stack's device plugins and readiness checks on a real, tainted node: good and bad drivers of both vendors."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi_kubernetes as kubernetes
import pytest
from lightkube import ApiError, codecs
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Node, Pod

from components import readiness
from components.device_plugins import (
    AMD_IMAGE,
    NVIDIA_IMAGE,
    DevicePlugin,
    DevicePlugins,
    DevicePluginsArgs,
    Nodes,
)
from components.gpu_vendors import AMD, GPU_VENDORS, NVIDIA, GpuVendor
from components.readiness import PoolCheck, Readiness, ReadinessArgs
from localcloud.node import devices
from localcloud.node.devices import Health, Resource
from localcloud.node.images import Image
from localcloud.toolchain import resolve
from tests.components.recorder import record
from tests.localcloud.node.conftest import NAME, TOOLS, NodeCluster, wait_for
from tests.localcloud.plugin.conftest import MakeProject, make_project

__all__ = ["make_project"]

NODES = Nodes(label="agentpool", values=("gpu",))
IMAGES = {NVIDIA: NVIDIA_IMAGE, AMD: AMD_IMAGE.partition("@")[0]}
MINIMUM = {NVIDIA: "550.54.15", AMD: "6.10.5"}
PROGRAMS = {NVIDIA: "/usr/bin/nvidia-smi", AMD: "/usr/bin/amd-smi"}

# What the real programs print for the options that the checks use, AMD's in the form of ROCm 7.
GOOD = {
    NVIDIA: "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, NVIDIA A100 80GB PCIe, 550.144.03",
    AMD: "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.12.12",
}
OLD = {
    NVIDIA: "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, Tesla T4, 535.54.03",
    AMD: "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.7.0",
}
LOST = "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, [GPU is lost], [GPU is lost]"


def program(prints: str, code: int = 0) -> str:
    return f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n"


def gpu(vendor: GpuVendor, prints: str | None, health: Health = "Healthy") -> dict[str, Resource]:
    """One GPU whose vendor's program prints that; None: the driver's programs are not brought into containers."""
    mounts = {PROGRAMS[vendor]: program(prints)} if prints is not None else {}
    return {vendor.whole: Resource(devices={"GPU-0": health}, mounts=mounts)}


def declared(
    component: Callable[[kubernetes.Provider], object], token: str, kind: str
) -> list[dict[str, Any]]:
    """The manifests of one kind that a component declares; `token` is their type's."""
    recording = record(lambda: component(kubernetes.Provider("cluster")))
    api_version = token.removeprefix("kubernetes:").rpartition(":")[0]
    made = [{"apiVersion": api_version, "kind": kind, **each.inputs} for each in recording.of_type(token)]
    # The SDK hands over every number as a float; the engine writes whole ones as such.
    whole: list[dict[str, Any]] = json.loads(re.sub(r"(?<=: )(\d+)\.0\b", r"\1", json.dumps(made)))
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The real node as the one node of a vendor's pool, with the stack's device plugin on it."""

    cluster: NodeCluster
    vendor: GpuVendor

    def becomes(self, resources: Mapping[str, Resource] | None) -> None:
        self.cluster.node.set_devices(resources)
        health = next(iter(resources.values())).devices["GPU-0"] if resources else "Unhealthy"
        wanted = "1" if health == "Healthy" else "0"
        wait_for(f"{wanted} GPUs", lambda: self._allocatable() == wanted)

    def _allocatable(self) -> str:
        status = self.cluster.kubernetes.get(Node, NAME).status
        return ((status and status.allocatable) or {}).get(self.vendor.whole, "0")

    def check(self) -> tuple[str, str]:
        """How the check of the pool ended, and what it says."""
        namespace = self.cluster.namespace()
        (manifest,) = declared(
            lambda provider: Readiness("readiness", readiness_of(self.vendor, provider)),
            "kubernetes:batch/v1:Job",
            "Job",
        )
        manifest["metadata"]["namespace"] = namespace
        name = manifest["metadata"]["name"]
        self.cluster.kubernetes.create(codecs.from_dict(manifest))

        def ended() -> tuple[str, str] | None:
            status = self.cluster.kubernetes.get(Job, name, namespace=namespace).status
            for condition in (status and status.conditions) or []:
                if condition.type in ("Complete", "Failed") and condition.status == "True":
                    return condition.type, condition.reason or ""
            return None

        type_, reason = wait_for("the end of the check", ended)
        return type_ if type_ == "Complete" else reason, self._said(namespace)

    def _said(self, namespace: str) -> str:
        for pod in self.cluster.kubernetes.list(Pod, namespace=namespace):
            if pod.status and pod.status.phase in ("Succeeded", "Failed"):
                return self.cluster.log(pod)
        events = self.cluster.kubernetes.list(Event, namespace=namespace)
        return "\n".join(event.message or "" for event in events)


def readiness_of(vendor: GpuVendor, provider: kubernetes.Provider) -> ReadinessArgs:
    check = PoolCheck(
        pool="gpu",
        vendor=vendor,
        resource=vendor.whole,
        nodes=NODES,
        count=1,
        taints=(vendor.taint,),
        minimum_driver=MINIMUM[vendor],
        image=TOOLS,
    )
    return ReadinessArgs(checks=[check], provider=provider, depends_on=[])


@pytest.fixture(scope="module", params=GPU_VENDORS, ids=lambda vendor: vendor.name)
def pool(node_cluster: NodeCluster, request: pytest.FixtureRequest) -> Iterator[Pool]:
    vendor: GpuVendor = request.param
    plugin = DevicePlugin(
        vendor=vendor, strategy="none", image=IMAGES[vendor], nodes=NODES, taints=(vendor.taint,)
    )
    node_cluster.node.add_images([plugin_image(vendor)])
    taint = {"key": vendor.taint.key, "value": vendor.taint.value, "effect": vendor.taint.effect}
    node_cluster.kubernetes.patch(Node, NAME, {"spec": {"taints": [taint]}})
    (manifest,) = declared(
        lambda provider: DevicePlugins(
            "devices", DevicePluginsArgs(plugins=[plugin], provider=provider, depends_on=[])
        ),
        "kubernetes:apps/v1:DaemonSet",
        "DaemonSet",
    )
    manifest["metadata"]["namespace"] = namespace = node_cluster.namespace()
    node_cluster.kubernetes.create(codecs.from_dict(manifest))
    yield Pool(cluster=node_cluster, vendor=vendor)
    node_cluster.kubernetes.patch(Node, NAME, {"spec": {"taints": None}})
    node_cluster.node.set_devices(None)
    node_cluster.kubernetes.delete(DaemonSet, manifest["metadata"]["name"], namespace=namespace)


def plugin_image(vendor: GpuVendor) -> Image:
    return devices.plugin_image(resolve().control_plane, IMAGES[vendor])


def test_a_good_node_passes_and_says_its_driver(pool: Pool) -> None:
    pool.becomes(gpu(pool.vendor, GOOD[pool.vendor]))
    outcome, said = pool.check()
    assert outcome == "Complete", said
    driver = {NVIDIA: "550.144.03", AMD: "6.12.12"}[pool.vendor]
    assert said.startswith(f"node {NAME} is ready: driver {driver}\n")


def test_an_old_driver_fails_and_says_which_would_do(pool: Pool) -> None:
    pool.becomes(gpu(pool.vendor, OLD[pool.vendor]))
    outcome, said = pool.check()
    assert outcome == "BackoffLimitExceeded"
    driver = {NVIDIA: "535.54.03", AMD: "6.7.0"}[pool.vendor]
    assert f"its driver is {driver}, and {MINIMUM[pool.vendor]} is the oldest that will do" in said


def test_a_driver_that_containers_do_not_see_fails(pool: Pool) -> None:
    pool.becomes(gpu(pool.vendor, None))
    outcome, said = pool.check()
    assert outcome == "BackoffLimitExceeded"
    assert f"there is no {pool.vendor.name}-smi" in said


def test_a_node_that_offers_no_gpu_fails_at_the_deadline(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "DEADLINE_SECONDS", 2)
    pool.becomes(None)
    outcome, said = pool.check()
    assert outcome == "DeadlineExceeded"
    assert f"Insufficient {pool.vendor.whole}" in said


def test_a_node_whose_only_gpu_is_unhealthy_fails_at_the_deadline(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "DEADLINE_SECONDS", 2)
    pool.becomes(gpu(pool.vendor, GOOD[pool.vendor], health="Unhealthy"))
    outcome, said = pool.check()
    assert outcome == "DeadlineExceeded"
    assert f"Insufficient {pool.vendor.whole}" in said


@pytest.mark.parametrize(
    "pool", [NVIDIA], indirect=True, ids=["nvidia"]
)  # how amd-smi shows one is not known
def test_a_gpu_that_is_lost_fails(pool: Pool) -> None:
    pool.becomes(gpu(NVIDIA, LOST))
    outcome, said = pool.check()
    assert outcome == "BackoffLimitExceeded"
    assert "a GPU does not answer" in said


PROGRAM = f"""
import pulumi
import pulumi_kubernetes as kubernetes
from components.gpu_vendors import NVIDIA
from components.readiness import Readiness
from tests.localcloud.node.test_readiness import readiness_of

cluster = kubernetes.Provider("cluster")
readiness = Readiness("readiness", readiness_of(NVIDIA, cluster))
kubernetes.core.v1.Pod(
    "sample",
    metadata={{"name": "sample", "namespace": "default"}},
    spec={{
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{{"operator": "Exists"}}],
        "containers": [{{"name": "main", "image": "{TOOLS}", "command": ["sleep", "1000"]}}],
        "nodeSelector": {{"agentpool": "gpu"}},
    }},
    opts=pulumi.ResourceOptions(provider=cluster, depends_on=[readiness]),
)
"""


@pytest.mark.engine
@pytest.mark.parametrize("pool", [NVIDIA], indirect=True, ids=["nvidia"])
def test_up_fails_with_the_nodes_words_and_starts_no_workload_until_the_driver_is_upgraded(
    pool: Pool, make_project: MakeProject
) -> None:
    project = make_project(PROGRAM)
    project.environment["KUBECONFIG"] = str(pool.cluster.control_plane.kubeconfig)
    pool.becomes(gpu(NVIDIA, OLD[NVIDIA]))
    code, printed = project.run("up", "--yes", "--skip-preview")
    assert code != 0
    assert "its driver is 535.54.03, and 550.54.15 is the oldest that will do" in printed
    with pytest.raises(ApiError, match="not found"):
        pool.cluster.kubernetes.get(Pod, "sample", namespace="default")
    pool.becomes(gpu(NVIDIA, GOOD[NVIDIA]))
    project.succeed("up", "--yes", "--skip-preview")
    sample = pool.cluster.kubernetes.get(Pod, "sample", namespace="default")
    assert sample.status
    assert sample.status.phase == "Running"
    pool.cluster.kubernetes.delete(Pod, "sample", namespace="default")
