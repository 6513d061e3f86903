# SPDX-License-Identifier: Apache-2.0
"""The AKS cluster, new or existing, and the nodes that need no GPU."""

from typing import Final, Literal

from pydantic import Field

from .base import ExistingResource, Part
from .maintenance import Maintenance

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
CLUSTER_NAME: Final = r"^[a-zA-Z0-9]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?$"

STANDARD_UPGRADE_CHANNEL: Final = "patch"

Mode = Literal["standard", "automatic"]
"""Standard: node pools, versions and access are the stack's to say. Automatic: AKS makes nodes as pods need them,
upgrades by its stable channel, admits only Entra identities and checks workloads.
https://learn.microsoft.com/azure/aks/intro-aks-automatic
"""


class SystemPool(Part):
    """The untainted pool for everything that needs no GPU."""

    vm_size: str = Field(
        default="Standard_D4s_v5",
        pattern=r"^Standard_",
        description="a VM size of the region",
        examples=["Standard_D4s_v5"],
    )
    count: int = Field(default=2, ge=1, le=100, description="1 to 100 nodes", examples=[2])


class NewCluster(Part):
    """A cluster that comes and goes with the stack."""

    name: str = Field(
        pattern=CLUSTER_NAME,
        description="1 to 63 letters, digits, hyphens and underscores; a letter or digit first and last",
        examples=["gpuheap-prod"],
    )
    mode: Mode = Field(
        default="standard",
        description="standard, or automatic, which AKS recommends for production",
        examples=["automatic"],
    )
    kubernetes_version: str | None = Field(
        default=None,
        pattern=r"^1\.\d{2}(\.\d+)?$",
        description="a version that AKS offers, in quotes, or none for its default",
        examples=["1.34"],
    )
    upgrade_channel: Literal["patch", "stable", "rapid", "node-image", "none"] | None = Field(
        default=None,
        description="how AKS upgrades a standard cluster: patch (the default), stable, rapid, node-image or none",
        examples=["patch"],
    )
    maintenance: Maintenance = Maintenance()
    local_accounts: bool | None = Field(
        default=None,
        description="whether a standard cluster has an administrator's certificate beside Entra; default: true",
        examples=[False],
    )
    protect: bool = Field(
        default=False,
        description="true to refuse every `pulumi destroy` or replacement of the cluster",
        examples=[True],
    )
    system_pool: SystemPool = SystemPool()

    @property
    def entra_only(self) -> bool:
        """Whether only Entra identities get in, by Azure roles."""
        return self.mode == "automatic" or self.local_accounts is False


class ExistingCluster(Part):
    """A cluster that is there."""

    existing: ExistingResource = Field(description="the AKS cluster to use")
    mode: Mode = Field(
        default="standard", description="of which kind it is: standard or automatic", examples=["automatic"]
    )
