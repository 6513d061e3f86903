# SPDX-License-Identifier: Apache-2.0
"""Local NVMe disks of GPU nodes as volumes that live as long as their pod: Azure Container Storage, version 2.

https://learn.microsoft.com/azure/storage/container-storage/use-container-storage-with-local-disk
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import kubernetesconfiguration

STORAGE_CLASS: Final = "local-nvme"
DRIVER: Final = "localdisk.csi.acstor.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStorageArgs:
    cluster_name: str
    cluster_resource_group_name: pulumi.Input[str]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]


class LocalStorage(pulumi.ComponentResource):
    """The extension, and the StorageClass `local-nvme` by which pods ask for a piece of a disk."""

    def __init__(self, name: str, args: LocalStorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:LocalStorage", name, {}, opts)
        extension = kubernetesconfiguration.Extension(
            name,
            resource_group_name=args.cluster_resource_group_name,
            cluster_rp="Microsoft.ContainerService",
            cluster_resource_name="managedClusters",
            cluster_name=args.cluster_name,
            extension_name="acstor",
            extension_type="microsoft.azurecontainerstoragev2",
            auto_upgrade_minor_version=True,
            identity=kubernetesconfiguration.IdentityArgs(
                type=kubernetesconfiguration.ResourceIdentityType.SYSTEM_ASSIGNED
            ),
            scope=kubernetesconfiguration.ScopeArgs(
                cluster=kubernetesconfiguration.ScopeClusterArgs(release_namespace="kube-system")
            ),
            configuration_settings={"enable-azure-container-storage": "true"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        # From version 2.1 the extension installs its driver when it sees a class that names it.
        kubernetes.storage.v1.StorageClass(
            f"{name}-class",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=STORAGE_CLASS),
            provisioner=DRIVER,
            reclaim_policy="Delete",
            # The disk is on the pod's node: which one that is must be decided first.
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[extension]),
        )
        self.register_outputs({"storageClass": STORAGE_CLASS})
