# SPDX-License-Identifier: Apache-2.0
"""The nodes with GPUs, and their local disks."""

from collections.abc import Sequence

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.gpu_pool import AgentPool, AgentPoolArgs
from components.karpenter_pool import KarpenterPool, KarpenterPoolArgs
from components.local_storage import LocalStorage, LocalStorageArgs


def gpu_pools(config: StackConfig, cluster: Cluster) -> Sequence[pulumi.Resource]:
    """The pools, or none: an existing cluster may have GPU nodes already."""
    if config.cluster.mode == "automatic":
        return [
            KarpenterPool(
                f"gpu-pool-{pool.name}",
                KarpenterPoolArgs(
                    pool=pool,
                    location=cluster.location,
                    node_subnet_id=cluster.node_subnet_id,
                    provider=cluster.provider,
                    depends_on=cluster.ready,
                    tags=config.tags,
                ),
            )
            for pool in config.gpu_pools
        ]
    return [
        AgentPool(
            f"gpu-pool-{pool.name}",
            AgentPoolArgs(
                pool=pool,
                cluster_name=cluster.cluster_name,
                cluster_resource_group_name=cluster.resource_group_name,
                node_subnet_id=cluster.node_subnet_id,
                depends_on=cluster.ready,
                tags=config.tags,
            ),
        )
        for pool in config.gpu_pools
    ]


def local_storage(config: StackConfig, cluster: Cluster) -> LocalStorage | None:
    """Volumes on NVMe disks, if a pool offers some."""
    if not any(pool.local_nvme for pool in config.gpu_pools):
        return None
    return LocalStorage(
        "local-storage",
        LocalStorageArgs(
            cluster_name=cluster.cluster_name,
            cluster_resource_group_name=cluster.resource_group_name,
            provider=cluster.provider,
            depends_on=cluster.ready,
        ),
    )
