# SPDX-License-Identifier: Apache-2.0
"""The nodes with GPUs."""

from collections.abc import Sequence

from components.cluster import Cluster, GpuPool, GpuPoolArgs
from components.config import StackConfig


def gpu_pool(config: StackConfig, cluster: Cluster) -> Sequence[GpuPool]:
    """The pool, or nothing: an existing cluster may have GPU nodes already."""
    if config.gpu_pool is None:
        return []
    pool = GpuPoolArgs(
        pool_name=config.gpu_pool.name,
        cluster_name=cluster.cluster_name,
        cluster_resource_group_name=cluster.resource_group_name,
        vm_size=config.gpu_pool.vm_size,
        count=config.gpu_pool.count,
        node_subnet_id=cluster.node_subnet_id,
        depends_on=cluster.ready,
        tags=config.tags,
    )
    return [GpuPool("gpu-pool", pool)]
