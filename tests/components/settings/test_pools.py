# SPDX-License-Identifier: Apache-2.0
"""What a pool of GPU nodes may be, and what it offers to pods."""

from typing import Any

import pytest

from components.settings.gpu_sizes import SIZES, known
from components.settings.pools import GpuPool
from localcloud.azure.vm_sizes import slice_name, vm_size
from tests.components.configs import accepted, only_problem

A100, H100, T4, MI300X = (
    "Standard_NC24ads_A100_v4",
    "Standard_ND96isr_H100_v5",
    "Standard_NC4as_T4_v3",
    "Standard_ND96isr_MI300X_v5",
)
RESERVED = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/gpus"


def pool(size: str = A100, **keys: Any) -> GpuPool:
    return accepted(gpuPools=[{"name": "gpu", "vmSize": size, **keys}]).gpu_pools[0]


@pytest.mark.parametrize(
    "size", [A100, H100, "standard_nv36ads_a10_v5", "Standard_NCC40ads_H100_v5", "Standard_NC256ds_X_v9"]
)
def test_sizes_of_the_gpu_series_are_accepted(size: str) -> None:
    assert pool(size).vm_size == size


def test_a_size_with_an_fpga_is_no_gpu_size() -> None:
    assert "FPGA" in only_problem(gpuPools=[{"name": "gpu", "vmSize": "Standard_NP10s"}]).reason


@pytest.mark.parametrize(
    ("size", "vendor"),
    [
        (A100, "nvidia"),
        (MI300X, "amd"),
        ("Standard_NV8as_v4", "amd"),
        ("Standard_NG32ads_V620_v1", "amd"),
        ("Standard_NV28adms_V710_v5", "amd"),
        ("Standard_ND96isr_MI999X_v9", "amd"),
        ("Standard_NC256ds_X_v9", "nvidia"),
    ],
)
def test_the_size_says_whose_gpus_it_has(size: str, vendor: str) -> None:
    made = pool(size)
    assert made.vendor == vendor
    assert made.taints == (f"{vendor}.com/gpu=present:NoSchedule",)
    assert made.resource_names == (f"{vendor}.com/gpu",)


@pytest.mark.parametrize("size", SIZES)
def test_the_local_cloud_knows_the_same_of_each_size(size: str) -> None:
    row, simulated = known(size), vm_size(size)
    assert row is not None
    assert (row.vendor, row.gpus) == (simulated.gpu_vendor, simulated.gpus)
    cut = {profile: slice_name(size, f"MIG{profile}") for profile in ("1g", "2g", "3g", "4g", "7g")}
    assert row.slices == {profile: name for profile, name in cut.items() if name}


def test_spot_nodes_have_a_taint_of_their_own_beside_that_of_gpus() -> None:
    assert pool(spot=True).taints == (
        "nvidia.com/gpu=present:NoSchedule",
        "kubernetes.azure.com/scalesetpriority=spot:NoSchedule",
    )


# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
@pytest.mark.parametrize(
    ("size", "profile", "name"),
    [
        (A100, "1g", "nvidia.com/mig-1g.10gb"),
        (A100, "3g", "nvidia.com/mig-3g.40gb"),
        ("Standard_ND96asr_v4", "2g", "nvidia.com/mig-2g.10gb"),
        ("Standard_NC40ads_H100_v5", "1g", "nvidia.com/mig-1g.12gb"),
        ("Standard_ND96isr_H200_v5", "7g", "nvidia.com/mig-7g.141gb"),
    ],
)
def test_instances_have_their_own_name_with_the_mixed_strategy_only(
    size: str, profile: str, name: str
) -> None:
    assert pool(size, mig={"profile": profile, "strategy": "mixed"}).resource_names == (name,)
    assert pool(size, mig={"profile": profile}).resource_names == ("nvidia.com/gpu",)


def test_aks_installs_drivers_of_nvidia_only() -> None:
    assert pool(A100).installs_driver
    assert not pool(A100, driver="None").installs_driver
    assert not pool(MI300X).installs_driver


@pytest.mark.parametrize(
    ("size", "keys", "at", "reason"),
    [
        (
            A100,
            {"count": 1, "autoscale": {"max": 2}},
            "count",
            "a pool that scales has no fixed number of nodes",
        ),
        (
            A100,
            {"autoscale": {"min": 3, "max": 2}},
            "autoscale.max",
            "the largest number of nodes is below the smallest",
        ),
        (T4, {"mig": {"profile": "1g"}}, "mig", f"MIG cannot cut the GPUs of {T4}"),
        (MI300X, {"mig": {"profile": "1g"}}, "mig", f"MIG cannot cut the GPUs of {MI300X}"),
        (
            A100,
            {"mig": {"profile": "1g"}, "autoscale": {"max": 2}},
            "autoscale",
            "AKS does not scale pools with MIG",
        ),
        (MI300X, {"driver": "Install"}, "driver", "AKS installs NVIDIA's driver only"),
        (
            A100,
            {"spot": True, "capacityReservationGroup": RESERVED},
            "capacityReservationGroup",
            "spot nodes cannot use reserved capacity",
        ),
        (A100, {"spotMaxPrice": 1.5}, "spotMaxPrice", "only spot nodes have a highest price"),
        (T4, {"localNvme": True}, "localNvme", f"no local NVMe disk of {T4} is known"),
        (
            A100,
            {"localNvme": True},
            "localNvme",
            f"{A100} has one NVMe disk, and an ephemeral OS disk may take it",
        ),
        (
            A100,
            {"upgrade": {"maxSurge": "1", "maxUnavailable": "1"}},
            "upgrade.maxUnavailable",
            "a pool is upgraded with more nodes or with fewer, not both",
        ),
        (A100, {"zones": ["1", "1"]}, "zones", "a zone is named twice"),
        (A100, {"labels": {"a b": "c"}}, "labels", "'a b' is no key of a Kubernetes label"),
        (A100, {"labels": {"a": "-"}}, "labels", "'-', of a, is no value of a Kubernetes label"),
        (
            A100,
            {"labels": {"node.kubernetes.io/a": "b"}},
            "labels",
            "labels of node.kubernetes.io are for Kubernetes and AKS to set",
        ),
    ],
)
def test_a_pool_that_azure_would_refuse_is_refused_with_the_reason(
    size: str, keys: dict[str, Any], at: str, reason: str
) -> None:
    problem = only_problem(gpuPools=[{"name": "gpu", "vmSize": size, **keys}])
    assert (problem.path, problem.reason) == (f"gpuheap:gpuPools[0].{at}", reason)


@pytest.mark.parametrize(
    ("size", "keys"),
    [
        (A100, {"localNvme": True, "osDisk": "Managed"}),
        ("Standard_NC48ads_A100_v4", {"localNvme": True}),
        (H100, {"localNvme": True, "osDisk": "Ephemeral"}),
        (A100, {"zones": [1, "2"], "upgrade": {"maxSurge": 1}}),
        (A100, {"labels": {"example.com/team": "research", "kubernetes.io.example/a": ""}}),
        (A100, {"autoscale": {"max": 8}, "spot": True, "spotMaxPrice": 3}),
        (A100, {"capacityReservationGroup": RESERVED}),
    ],
)
def test_a_pool_that_azure_takes_is_accepted(size: str, keys: dict[str, Any]) -> None:
    assert pool(size, **keys)


def test_the_key_that_is_too_much_is_proposed_for_removal() -> None:
    problem = only_problem(gpuPools=[{"name": "gpu", "vmSize": A100, "count": 1, "autoscale": {"max": 2}}])
    assert problem.fix == "pulumi config rm --path 'gpuheap:gpuPools[0].count'"
