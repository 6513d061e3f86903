# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes calls the GPUs of each vendor: resources, taints, node labels.

Facts only; who uses them for what is in `placement.py`, `workspaces.py`, `device_plugins.py` and `readiness.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """What keeps pods that do not tolerate it away from a node."""

    key: str
    value: str
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """As AKS, `kubectl taint` and a pool's `nodeTaints` write it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuVendor:
    """One vendor's names."""

    name: str
    """As AKS writes it in the node label `kubernetes.azure.com/accelerator`."""
    whole: str
    """The resource of whole devices, and of slices where the device plugin's strategy is `single`."""
    prefixes: tuple[str, ...]
    """How the name of every resource begins that is a GPU or a part of one."""
    taint: Taint

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels of the vendor's nodes, put there by AKS: https://learn.microsoft.com/azure/aks/use-labels"""
        return {"kubernetes.azure.com/accelerator": self.name}

    def owns(self, resource: str) -> bool:
        """Whether a resource of this name is a GPU of this vendor, or a part of one."""
        return resource.startswith(self.prefixes)


NVIDIA: Final = GpuVendor(
    name="nvidia",
    whole="nvidia.com/gpu",
    # Shared devices are nvidia.com/gpu.shared, MIG slices of the strategy `mixed` nvidia.com/mig-1g.10gb:
    # https://github.com/NVIDIA/k8s-device-plugin#configuring-the-nvidia-device-plugin-binary
    prefixes=("nvidia.com/gpu", "nvidia.com/mig-"),
    taint=Taint(key="nvidia.com/gpu", value="present"),
)
AMD: Final = GpuVendor(
    name="amd",
    whole="amd.com/gpu",
    # Partitions of the strategy `mixed` are named for the compute and the memory mode, as amd.com/cpx_nps4:
    # https://instinct.docs.amd.com/projects/k8s-device-plugin/en/latest/user-guide/resource-allocation.html
    prefixes=("amd.com/gpu", "amd.com/spx_", "amd.com/dpx_", "amd.com/tpx_", "amd.com/qpx_", "amd.com/cpx_"),
    taint=Taint(key="amd.com/gpu", value="present"),
)
GPU_VENDORS: Final = (NVIDIA, AMD)
