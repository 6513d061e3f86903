# SPDX-License-Identifier: Apache-2.0
"""What a VM size has: processors, GPUs, and of whom; what MIG makes of a GPU. Pure.

Processors are in the name; memory is not, and is only about right. GPU counts, and the memory of GPUs that can be cut,
are from https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated
"""

import math
import re
from dataclasses import dataclass
from typing import Final, Literal

GIB_PER_PROCESSOR: Final = 4

_GPUS: Final = {
    "NC24s_v3": 4,
    "NC24rs_v3": 4,
    "NC12s_v3": 2,
    "NC64as_T4_v3": 4,
    "NC48ads_A100_v4": 2,
    "NC96ads_A100_v4": 4,
    "NC80adis_H100_v5": 2,
    "ND40rs_v2": 8,
    "ND96asr_v4": 8,
    "ND96amsr_A100_v4": 8,
    "ND96isr_H100_v5": 8,
    "ND96isrf_H100_v5": 8,
    "ND96isr_H200_v5": 8,
    "ND96isr_MI300X_v5": 8,
    "ND128isr_NDR_GB200_v6": 4,
    "NV24s_v3": 2,
    "NV48s_v3": 4,
    "NV72ads_A10_v5": 2,
}
"""Sizes with more than one GPU. All other sizes of the series below have one, or a part of one."""

_GPU_SERIES: Final = re.compile(r"N(CC?|[DGV])\d")
_AMD: Final = re.compile(r"NV\d+as_v4|NG\d|N[DV]\d+\w*_(MI\d+|V710)")

SLICES: Final = {"MIG1g": 7, "MIG2g": 3, "MIG3g": 2, "MIG4g": 1, "MIG7g": 1}
"""How many instances a GPU is cut into, by AKS's name for the profile."""

_EIGHTHS: Final = {"MIG1g": 1, "MIG2g": 2, "MIG3g": 4, "MIG4g": 4, "MIG7g": 8}
"""How much of the GPU's memory each has: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"""

_CUTTABLE: Final = {
    r"NC\d+ads_A100_v4|ND96amsr_A100_v4|ND\d+isr_H100_v5": 80,
    r"ND96asr_v4": 40,
    r"NC\d+adi?s_H100_v5": 94,
    r"ND\d+isr_H200_v5": 141,
}
"""The memory of a GPU in GB, of sizes whose GPUs MIG can cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmSize:
    processors: int
    memory_gib: int
    gpus: int
    gpu_vendor: Literal["nvidia", "amd"] | None


def vm_size(name: str) -> VmSize:
    """What is known of `Standard_NC24ads_A100_v4`, for example."""
    short = name.removeprefix("Standard_")
    digits = re.search(r"\d+", short)
    processors = int(digits[0]) if digits else 2
    has_gpu = _GPU_SERIES.match(short) is not None
    vendor: Literal["nvidia", "amd"] = "amd" if _AMD.match(short) else "nvidia"
    return VmSize(
        processors=processors,
        memory_gib=processors * GIB_PER_PROCESSOR,
        gpus=_GPUS.get(short, 1) if has_gpu else 0,
        gpu_vendor=vendor if has_gpu else None,
    )


def slice_name(name: str, profile: str) -> str | None:
    """What NVIDIA calls an instance of AKS's profile, `1g.10gb` for example; None where the GPU cannot be cut so."""
    short = name.removeprefix("Standard_")
    memory = next((gb for pattern, gb in _CUTTABLE.items() if re.fullmatch(pattern, short)), None)
    if memory is None or profile not in _EIGHTHS:
        return None
    return f"{profile.removeprefix('MIG')}.{math.floor(memory * _EIGHTHS[profile] / 8 + 0.5)}gb"
