# SPDX-License-Identifier: Apache-2.0
"""The AKS cluster, new or existing, and the nodes that need no GPU."""

from typing import Final

from pydantic import Field

from .base import ExistingResource, Part

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
CLUSTER_NAME: Final = r"^[a-zA-Z0-9]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?$"


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
    name: str = Field(
        pattern=CLUSTER_NAME,
        description="1 to 63 letters, digits, hyphens and underscores; a letter or digit first and last",
        examples=["gpuheap-prod"],
    )
    kubernetes_version: str | None = Field(
        default=None,
        pattern=r"^1\.\d{2}(\.\d+)?$",
        description="a version that AKS offers, in quotes, or none for its default",
        examples=["1.34"],
    )
    system_pool: SystemPool = SystemPool()


class ExistingCluster(Part):
    existing: ExistingResource = Field(description="the AKS cluster to use")
