# SPDX-License-Identifier: Apache-2.0
"""Pools of nodes with GPUs: what each may be, and what it offers to pods.

What a pool must not be because of the kind of the cluster is in `combinations.py`.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from . import gpu_sizes
from .base import Part, refuse
from .pool_parts import Autoscale, Mig, Surge, Zone, label_texts, no_zone_twice

# Linux pools: https://learn.microsoft.com/azure/aks/create-node-pools#limitations
POOL_NAME: Final = r"^[a-z][a-z0-9]{0,11}$"
_CAPACITY_RESERVATION_GROUP: Final = (
    r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.Compute/capacityReservationGroups/[^/]+$"
)
SPOT_TAINT_KEY: Final = "kubernetes.azure.com/scalesetpriority"
SPOT_TAINT: Final = f"{SPOT_TAINT_KEY}=spot:NoSchedule"
"""AKS gives it to every spot node: https://learn.microsoft.com/azure/aks/spot-node-pool"""

TAINT_VALUE: Final = "present"


def _gpu_size(value: str) -> str:
    if gpu_sizes.has_fpga(value):
        raise refuse("sizes of the NP series have FPGAs, not GPUs")
    if not gpu_sizes.has_gpu(value):
        raise refuse("this VM size has no GPU")
    return value


class GpuPool(Part):
    """Nodes of one size. Whose GPUs they have follows from the size."""

    name: str = Field(
        pattern=POOL_NAME,
        description="1 to 12 lower-case letters and digits, a letter first",
        examples=["gpu"],
    )
    vm_size: Annotated[str, AfterValidator(_gpu_size)] = Field(
        description="a size of the NC, ND, NG or NV series", examples=["Standard_NC24ads_A100_v4"]
    )
    count: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="0 to 1000 nodes, where nothing scales; default 1",
        examples=[1],
    )
    autoscale: Autoscale | None = Field(
        default=None, description="as many nodes as pods need, in place of count", examples=[{"max": 4}]
    )
    spot: bool = Field(
        default=False,
        description="true for cheap nodes that Azure may take back, with a taint of their own",
        examples=[True],
    )
    spot_max_price: float | None = Field(
        default=None,
        gt=0,
        description="US dollars an hour at most, with spot; default: the regular price",
        examples=[2.5],
    )
    zones: Annotated[list[Zone], AfterValidator(no_zone_twice)] = Field(
        default=[], description="availability zones, in quotes; default: Azure chooses none", examples=["1"]
    )
    capacity_reservation_group: str | None = Field(
        default=None,
        pattern=_CAPACITY_RESERVATION_GROUP,
        description="the id of a capacity reservation group that the cluster's identity may use",
        examples=["/subscriptions/…/providers/Microsoft.Compute/capacityReservationGroups/gpus"],
    )
    mig: Mig | None = Field(
        default=None, description="cut each GPU into instances", examples=[{"profile": "1g"}]
    )
    driver: Literal["Install", "None"] | None = Field(
        default=None,
        description="Install (by AKS; the default for NVIDIA) or None (by an operator of yours; always for AMD)",
        examples=["None"],
    )
    os_disk: Literal["Ephemeral", "Managed"] | None = Field(
        default=None,
        description="Ephemeral (on a local disk) or Managed; default: Ephemeral where it fits",
        examples=["Managed"],
    )
    os_disk_gib: int | None = Field(
        default=None, ge=30, le=2048, description="30 to 2048 GiB", examples=[256]
    )
    local_nvme: bool = Field(
        default=False,
        description="true to offer the NVMe disks of the nodes as the StorageClass local-nvme",
        examples=[True],
    )
    labels: Annotated[dict[str, str], AfterValidator(label_texts)] = Field(
        default={}, max_length=50, description="labels of the nodes", examples=[{"team": "research"}]
    )
    upgrade: Surge | None = Field(
        default=None, description="how nodes are replaced in an upgrade", examples=[{"maxSurge": "1"}]
    )

    @property
    def vendor(self) -> gpu_sizes.Vendor:
        return gpu_sizes.vendor_of(self.vm_size)

    @property
    def taint_key(self) -> str:
        """The key of the taint that keeps pods without a GPU away."""
        return f"{self.vendor}.com/gpu"

    @property
    def taints(self) -> tuple[str, ...]:
        """All taints of the nodes, in AKS's form key=value:effect."""
        gpu = f"{self.taint_key}={TAINT_VALUE}:NoSchedule"
        return (gpu, SPOT_TAINT) if self.spot else (gpu,)

    @property
    def resource_names(self) -> tuple[str, ...]:
        """What pods may ask for on these nodes."""
        row = gpu_sizes.known(self.vm_size)
        if row is not None and self.mig is not None and self.mig.strategy == "mixed":
            return (f"nvidia.com/mig-{row.slices[self.mig.profile]}",)
        return (f"{self.vendor}.com/gpu",)

    @property
    def installs_driver(self) -> bool:
        """Whether AKS installs the driver. It has NVIDIA's only."""
        return self.vendor == "nvidia" if self.driver is None else self.driver == "Install"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._scales_one_way()
        self._spot_goes_with_the_rest()
        self._gpu_can_be_cut()
        if self.vendor == "amd" and self.driver == "Install":
            raise refuse(
                "AKS installs NVIDIA's driver only",
                under=("driver",),
                given="Install",
                allowed="None, with AMD's GPU operator",
                examples=["None"],
            )
        if self.local_nvme:
            self._nvme_is_free()
        return self

    def _scales_one_way(self) -> None:
        if self.autoscale is not None and self.count is not None:
            raise refuse(
                "a pool that scales has no fixed number of nodes",
                under=("count",),
                given=str(self.count),
                allowed="count or autoscale",
                remove=True,
            )

    def _spot_goes_with_the_rest(self) -> None:
        if self.spot and self.capacity_reservation_group is not None:
            raise refuse(
                "spot nodes cannot use reserved capacity",
                under=("capacityReservationGroup",),
                given=self.capacity_reservation_group,
                allowed="spot or capacityReservationGroup",
                remove=True,
            )
        if self.spot_max_price is not None and not self.spot:
            raise refuse(
                "only spot nodes have a highest price",
                under=("spotMaxPrice",),
                given=str(self.spot_max_price),
                allowed="spotMaxPrice with spot: true",
                remove=True,
            )

    def _gpu_can_be_cut(self) -> None:
        if self.mig is None:
            return
        row = gpu_sizes.known(self.vm_size)
        if row is None or not row.slices:
            raise refuse(
                f"MIG cannot cut the GPUs of {self.vm_size}",
                under=("mig",),
                given=self.mig.profile,
                allowed=f"mig with one of {', '.join(gpu_sizes.with_slices())}",
                remove=True,
            )
        if self.autoscale is not None:
            # https://learn.microsoft.com/azure/aks/gpu-multi-instance#limitations
            raise refuse(
                "AKS does not scale pools with MIG",
                under=("autoscale",),
                given=f"min {self.autoscale.min}, max {self.autoscale.max}",
                allowed="count",
                remove=True,
            )

    def _nvme_is_free(self) -> None:
        row = gpu_sizes.known(self.vm_size)
        disks = 0 if row is None else row.nvme_disks
        if disks == 0:
            raise refuse(
                f"no local NVMe disk of {self.vm_size} is known",
                under=("localNvme",),
                given="true",
                allowed=f"localNvme with one of {', '.join(gpu_sizes.with_nvme())}",
                remove=True,
            )
        if disks == 1 and self.os_disk != "Managed":
            raise refuse(
                f"{self.vm_size} has one NVMe disk, and an ephemeral OS disk may take it",
                under=("localNvme",),
                given=f"true, with osDisk {self.os_disk or 'left to AKS'}",
                allowed="localNvme with osDisk: Managed, or a size with more NVMe disks",
                remove=True,
            )
