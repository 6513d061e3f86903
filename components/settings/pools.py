# SPDX-License-Identifier: Apache-2.0
"""Pools of nodes with GPUs."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from .base import Part, refuse

# Linux pools: https://learn.microsoft.com/azure/aks/create-node-pools#limitations
POOL_NAME: Final = r"^[a-z][a-z0-9]{0,11}$"
# https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated: NC, ND, NG and NV sizes
# have GPUs.
GPU_SIZE: Final = re.compile(r"^Standard_N[CDGV]\d", re.IGNORECASE)
FPGA_SIZE: Final = re.compile(r"^Standard_NP\d", re.IGNORECASE)


def _gpu_size(value: str) -> str:
    if FPGA_SIZE.match(value):
        raise refuse("sizes of the NP series have FPGAs, not GPUs")
    if not GPU_SIZE.match(value):
        raise refuse("this VM size has no GPU")
    return value


class GpuPool(Part):
    name: str = Field(
        default="gpu",
        pattern=POOL_NAME,
        description="1 to 12 lower-case letters and digits, a letter first",
        examples=["gpu"],
    )
    vm_size: Annotated[str, AfterValidator(_gpu_size)] = Field(
        description="a size of the NC, ND, NG or NV series",
        examples=["Standard_NC24ads_A100_v4"],
    )
    count: int = Field(default=1, ge=0, le=100, description="0 to 100 nodes", examples=[1])
