# SPDX-License-Identifier: Apache-2.0
"""GPUs on a real, tainted node: the stack's device plugins offer them, whole or cut, and the kubelet hands them out."""

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube.models.core_v1 import Toleration
from lightkube.resources.core_v1 import Pod

from components.device_plugins import Strategy
from components.gpu_vendors import AMD, NVIDIA, GpuVendor
from tests.localcloud.node.conftest import NodeCluster
from tests.localcloud.node.pool import GOOD, Pool, gpus, plugged
from tests.waiting import wait_for

SLICES = {"slices": 7, "slice": "1g.10gb"}
PARTITIONS = {"slices": 8, "slice": "cpx_nps4"}
CUT: list[tuple[GpuVendor, Strategy, dict[str, Any], dict[str, int]]] = [
    (NVIDIA, "none", {}, {"nvidia.com/gpu": 1}),
    (NVIDIA, "single", SLICES, {"nvidia.com/gpu": 7}),
    (AMD, "single", PARTITIONS, {"amd.com/gpu": 8}),
]
"""What `mixed` offers is seen in `test_readiness.py`."""


def asks(cluster: NodeCluster, name: str, resource: str, count: int, *command: str) -> Pod:
    """A pod that asks for so many, and tolerates the taint of the vendor's nodes."""
    toleration = Toleration(key=f"{resource.partition('/')[0]}/gpu", operator="Exists", effect="NoSchedule")
    return cluster.pod(
        cluster.namespace(),
        name,
        *command,
        container={"resources": {"limits": {resource: str(count)}}},
        restartPolicy="Never",
        tolerations=[toleration],
    )


def why_pending(cluster: NodeCluster, pod: Pod) -> str:
    assert pod.metadata
    assert pod.metadata.name
    status = cluster.kubernetes.get(Pod, pod.metadata.name, namespace=pod.metadata.namespace).status
    conditions = (status and status.conditions) or []
    return next((each.message or "" for each in conditions if each.type == "PodScheduled"), "")


@pytest.mark.parametrize(("vendor", "strategy", "cut", "offered"), CUT)
def test_a_plugin_offers_what_its_strategy_says_and_a_pod_gets_one_of_it(
    node_cluster: NodeCluster,
    vendor: GpuVendor,
    strategy: Strategy,
    cut: dict[str, Any],
    offered: dict[str, int],
) -> None:
    with plugged(node_cluster, vendor, strategy) as pool:
        pool.becomes(gpus(vendor, GOOD[vendor], **cut))
        assert pool.offers() == offered
        (resource,) = offered
        variable = f"{vendor.name.upper()}_VISIBLE_DEVICES"
        pod = asks(node_cluster, "asks", resource, 1, "sh", "-c", f"{vendor.name}-smi; echo ${variable}")
        node_cluster.wait_for_phase(pod, "Succeeded")
        *program, given = node_cluster.log(pod).split()
        assert " ".join(program) == " ".join(GOOD[vendor].split())
        assert given in ({f"PART-{number}" for number in range(8)} if cut else {"GPU-0"})


@pytest.fixture(scope="module")
def pool(node_cluster: NodeCluster) -> Iterator[Pool]:
    with plugged(node_cluster, NVIDIA, "mixed") as pool:
        yield pool


def test_a_pod_that_asks_for_none_sees_neither_gpu_nor_driver(pool: Pool) -> None:
    pool.becomes(gpus(NVIDIA, GOOD[NVIDIA]))
    pod = pool.cluster.pod(
        pool.cluster.namespace(),
        "asks-not",
        "sh",
        "-c",
        "nvidia-smi || echo devices: $NVIDIA_VISIBLE_DEVICES",
        restartPolicy="Never",
        tolerations=[Toleration(operator="Exists")],
    )
    pool.cluster.wait_for_phase(pod, "Succeeded")
    # Its two outputs are copied one beside the other, and may come after its end.
    wait_for("both outputs", lambda: {"not found", "devices:\n"} <= words_of(pool.cluster.log(pod)))


def words_of(log: str) -> set[str]:
    return {word for word in ("not found", "devices:\n") if word in log}


def test_an_unhealthy_slice_is_not_offered_and_comes_back(pool: Pool) -> None:
    halves: dict[str, Any] = {"slices": 2, "slice": "3g.40gb"}
    pool.becomes(gpus(NVIDIA, GOOD[NVIDIA], unhealthy=("PART-1",), **halves))
    assert pool.offers() == {"nvidia.com/mig-3g.40gb": 1}
    pod = asks(pool.cluster, "wants-both", "nvidia.com/mig-3g.40gb", 2, "true")
    wait_for("refusal", lambda: "Insufficient nvidia.com/mig-3g.40gb" in why_pending(pool.cluster, pod))
    pool.becomes(gpus(NVIDIA, GOOD[NVIDIA], **halves))
    pool.cluster.wait_for_phase(pod, "Succeeded")
