# SPDX-License-Identifier: Apache-2.0
"""What a VM size with GPUs has: how many GPUs and of whom, local NVMe disks, and the instances into which MIG cuts
a GPU.

GPUs and disks are those of each series' data sheet:
https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated. A local disk that the sheet does
not call NVMe is not counted. Names of instances:
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Vendor = Literal["nvidia", "amd"]

# NC (NCC is its confidential form), ND, NG and NV sizes have GPUs; those of NP have FPGAs.
_GPU_SERIES: Final = re.compile(r"Standard_N(CC?|[DGV])\d", re.IGNORECASE)
_FPGA_SERIES: Final = re.compile(r"Standard_NP\d", re.IGNORECASE)
_AMD_SERIES: Final = re.compile(r"Standard_(NG\d|NV\d+as_v4|N[DV]\d+\w*_(MI\d+|V710))", re.IGNORECASE)

Slices = Mapping[str, str]
"""AKS's word for a profile, to the name under which the device plugin offers such an instance."""

_A100_40GB: Final[Slices] = {
    "1g": "1g.5gb",
    "2g": "2g.10gb",
    "3g": "3g.20gb",
    "4g": "4g.20gb",
    "7g": "7g.40gb",
}
_80GB: Final[Slices] = {"1g": "1g.10gb", "2g": "2g.20gb", "3g": "3g.40gb", "4g": "4g.40gb", "7g": "7g.80gb"}
_H100_94GB: Final[Slices] = {
    "1g": "1g.12gb",
    "2g": "2g.24gb",
    "3g": "3g.47gb",
    "4g": "4g.47gb",
    "7g": "7g.94gb",
}
_H200: Final[Slices] = {"1g": "1g.18gb", "2g": "2g.35gb", "3g": "3g.71gb", "4g": "4g.71gb", "7g": "7g.141gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSize:
    """One row of the table. A size that shares a GPU with others counts as having one."""

    vendor: Vendor
    gpus: int
    nvme_disks: int = 0
    slices: Slices = field(default_factory=dict)
    """Empty: the GPU cannot be cut."""


SIZES: Final[Mapping[str, GpuSize]] = {
    "Standard_NC4as_T4_v3": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NC8as_T4_v3": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NC16as_T4_v3": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NC64as_T4_v3": GpuSize(vendor="nvidia", gpus=4),
    "Standard_NC24ads_A100_v4": GpuSize(vendor="nvidia", gpus=1, nvme_disks=1, slices=_80GB),
    "Standard_NC48ads_A100_v4": GpuSize(vendor="nvidia", gpus=2, nvme_disks=2, slices=_80GB),
    "Standard_NC96ads_A100_v4": GpuSize(vendor="nvidia", gpus=4, nvme_disks=4, slices=_80GB),
    "Standard_NC40ads_H100_v5": GpuSize(vendor="nvidia", gpus=1, slices=_H100_94GB),
    "Standard_NC80adis_H100_v5": GpuSize(vendor="nvidia", gpus=2, slices=_H100_94GB),
    "Standard_NCC40ads_H100_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_ND96asr_v4": GpuSize(vendor="nvidia", gpus=8, slices=_A100_40GB),
    "Standard_ND96amsr_A100_v4": GpuSize(vendor="nvidia", gpus=8, slices=_80GB),
    "Standard_ND96isr_H100_v5": GpuSize(vendor="nvidia", gpus=8, nvme_disks=8, slices=_80GB),
    "Standard_ND96isr_H200_v5": GpuSize(vendor="nvidia", gpus=8, nvme_disks=8, slices=_H200),
    "Standard_ND96isr_MI300X_v5": GpuSize(vendor="amd", gpus=8, nvme_disks=8),
    "Standard_NV6ads_A10_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NV12ads_A10_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NV18ads_A10_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NV36ads_A10_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NV36adms_A10_v5": GpuSize(vendor="nvidia", gpus=1),
    "Standard_NV72ads_A10_v5": GpuSize(vendor="nvidia", gpus=2),
}
_BY_LOWER: Final = {name.lower(): size for name, size in SIZES.items()}


def known(vm_size: str) -> GpuSize | None:
    """The size's row; None for one that is newer or older than the table."""
    return _BY_LOWER.get(vm_size.lower())


def has_gpu(vm_size: str) -> bool:
    return _GPU_SERIES.match(vm_size) is not None


def has_fpga(vm_size: str) -> bool:
    return _FPGA_SERIES.match(vm_size) is not None


def vendor_of(vm_size: str) -> Vendor:
    """Whose GPUs a size has; of one that the table does not have, by its series."""
    row = known(vm_size)
    if row is not None:
        return row.vendor
    return "amd" if _AMD_SERIES.match(vm_size) else "nvidia"


def with_slices() -> list[str]:
    """The sizes whose GPUs MIG can cut."""
    return [name for name, size in SIZES.items() if size.slices]


def with_nvme() -> list[str]:
    return [name for name, size in SIZES.items() if size.nvme_disks]
