# SPDX-License-Identifier: Apache-2.0
"""A pool of nodes with GPUs on a standard cluster, as a resource of its own beside the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
from pulumi_azure_native import containerservice

from .settings.pool_parts import Surge
from .settings.pools import GpuPool

SPOT_LABELS: Final = {"kubernetes.azure.com/scalesetpriority": "spot"}
NO_HIGHEST_PRICE: Final = -1.0
FIXED: Final = (
    "availabilityZones",
    "capacityReservationGroupId",
    "gpuInstanceProfile",
    "gpuProfile",
    "osDiskSizeGB",
    "osDiskType",
    "scaleSetEvictionPolicy",
    "scaleSetPriority",
    "spotMaxPrice",
    "vnetSubnetID",
)
"""What a pool keeps for life, beside its size, which azure-native replaces on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPoolArgs:
    pool: GpuPool
    cluster_name: str
    cluster_resource_group_name: pulumi.Input[str]
    node_subnet_id: pulumi.Input[str | None]
    depends_on: Sequence[pulumi.Resource]
    tags: Mapping[str, str] = field(default_factory=dict)


class AgentPool(pulumi.ComponentResource):
    """Nodes of one size, tainted so that only pods which want a GPU run there."""

    def __init__(self, name: str, args: AgentPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:AgentPool", name, {}, opts)
        pool = args.pool
        scales = pool.autoscale is not None
        self.pool = containerservice.AgentPool(
            name,
            resource_group_name=args.cluster_resource_group_name,
            resource_name_=args.cluster_name,
            agent_pool_name=pool.name,
            mode="User",
            os_type="Linux",
            type="VirtualMachineScaleSets",
            vm_size=pool.vm_size,
            count=None if scales else 1 if pool.count is None else pool.count,
            enable_auto_scaling=scales,
            min_count=pool.autoscale.min if pool.autoscale else None,
            max_count=pool.autoscale.max if pool.autoscale else None,
            availability_zones=[*pool.zones] or None,
            capacity_reservation_group_id=pool.capacity_reservation_group,
            vnet_subnet_id=args.node_subnet_id,
            node_taints=list(pool.taints),
            # AKS labels spot nodes itself, and shows that as if it had been asked for.
            node_labels={**pool.labels, **(SPOT_LABELS if pool.spot else {})} or None,
            gpu_profile=containerservice.GPUProfileArgs(driver="Install" if pool.installs_driver else "None"),
            gpu_instance_profile=f"MIG{pool.mig.profile}" if pool.mig else None,
            os_disk_type=pool.os_disk,
            os_disk_size_gb=pool.os_disk_gib,
            scale_set_priority="Spot" if pool.spot else None,
            scale_set_eviction_policy="Delete" if pool.spot else None,
            spot_max_price=(pool.spot_max_price or NO_HIGHEST_PRICE) if pool.spot else None,
            upgrade_settings=_upgrade_settings(pool.upgrade),
            tags=args.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=args.depends_on,
                # Azure cannot change these in place, and azure-native would try.
                replace_on_changes=list(FIXED),
                # A pool's name is its identity: the old one must be gone first.
                delete_before_replace=True,
                # The autoscaler's to say.
                ignore_changes=["count"] if scales else None,
            ),
        )
        self.register_outputs({"poolName": self.pool.name})


def _upgrade_settings(upgrade: Surge | None) -> containerservice.AgentPoolUpgradeSettingsArgs | None:
    if upgrade is None:
        return None
    return containerservice.AgentPoolUpgradeSettingsArgs(
        # Without a node more, AKS must be told that there may be one less.
        max_surge="0" if upgrade.max_unavailable is not None else upgrade.max_surge,
        max_unavailable=upgrade.max_unavailable,
        drain_timeout_in_minutes=upgrade.drain_timeout_minutes,
        node_soak_duration_in_minutes=upgrade.soak_minutes,
    )
