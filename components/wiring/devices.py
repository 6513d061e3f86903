# SPDX-License-Identifier: Apache-2.0
"""What makes the GPUs of our pools usable: plugins, checks of nodes, and a workload to see that it is so."""

from collections.abc import Sequence

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.device_plugins import DevicePlugin, DevicePlugins, DevicePluginsArgs, Nodes, Strategy
from components.gpu_vendors import GPU_VENDORS, GpuVendor, Taint
from components.readiness import PoolCheck, Readiness, ReadinessArgs
from components.sample_workload import SampleWorkload, SampleWorkloadArgs
from components.settings.placement import TAINT
from components.settings.pools import GpuPool

# https://learn.microsoft.com/azure/aks/use-labels, https://karpenter.sh/docs/reference/labels
POOL_LABELS = {"standard": "kubernetes.azure.com/agentpool", "automatic": "karpenter.sh/nodepool"}
VENDORS = {vendor.name: vendor for vendor in GPU_VENDORS}


def device_plugins(
    config: StackConfig, cluster: Cluster, pools: Sequence[pulumi.Resource]
) -> list[DevicePlugins]:
    """The plugins, or nothing where all pools have theirs from elsewhere."""
    served: dict[tuple[GpuVendor, Strategy], list[GpuPool]] = {}
    for pool in config.gpu_pools:
        if brings_plugin(config, pool):
            served.setdefault((VENDORS[pool.vendor], _strategy(pool)), []).append(pool)
    plugins = [
        DevicePlugin(
            vendor=vendor,
            strategy=strategy,
            image=getattr(config.devices.plugin_image, vendor.name),
            nodes=_nodes(config, *own),
            taints=_taints(*own),
        )
        for (vendor, strategy), own in served.items()
    ]
    args = DevicePluginsArgs(plugins=plugins, provider=cluster.provider, depends_on=[*cluster.ready, *pools])
    return [DevicePlugins("device-plugins", args)] if plugins else []


def readiness(
    config: StackConfig, cluster: Cluster, after: Sequence[pulumi.Resource]
) -> Sequence[pulumi.Resource]:
    """The checks, or nothing: a pool that may have no nodes is not made to have one for them."""
    checks = [
        PoolCheck(
            pool=pool.name,
            vendor=VENDORS[pool.vendor],
            resource=pool.resource_names[0],
            nodes=_nodes(config, pool),
            count=_fewest_nodes(pool),
            taints=_taints(pool),
            minimum_driver=getattr(config.devices.minimum_driver, pool.vendor),
            image=getattr(config.devices.check_image, pool.vendor),
        )
        for pool in config.gpu_pools
        if _fewest_nodes(pool) and config.cluster.mode == "standard"
    ]
    if not checks or not config.devices.readiness:
        return []
    args = ReadinessArgs(checks=checks, provider=cluster.provider, depends_on=[*cluster.ready, *after])
    return [Readiness("readiness", args)]


def sample_workload(
    config: StackConfig, cluster: Cluster, after: Sequence[pulumi.Resource]
) -> Sequence[pulumi.Resource]:
    """The workload of the configuration, if it has one."""
    chosen = config.sample_workload
    if chosen is None:
        return []
    (pool,) = (pool for pool in config.gpu_pools if pool.name == chosen.pool)
    args = SampleWorkloadArgs(
        namespace=chosen.workspace,
        image=chosen.image,
        command=chosen.command,
        resource=pool.resource_names[0],
        gpus=chosen.gpus,
        nodes=_nodes(config, pool),
        taints=_taints(pool),
        provider=cluster.provider,
        depends_on=after,
    )
    return [SampleWorkload("sample-workload", args)]


def brings_plugin(config: StackConfig, pool: GpuPool) -> bool:
    """Whether the pool's device plugin is ours: an operator that installs NVIDIA's driver brings its own."""
    operators = pool.vendor == "nvidia" and not pool.installs_driver
    return pool.vendor in config.devices.plugins and not operators


def _strategy(pool: GpuPool) -> Strategy:
    return "none" if pool.mig is None else pool.mig.strategy


def _nodes(config: StackConfig, *pools: GpuPool) -> Nodes:
    return Nodes(label=POOL_LABELS[config.cluster.mode], values=tuple(pool.name for pool in pools))


def _taints(*pools: GpuPool) -> tuple[Taint, ...]:
    texts = dict.fromkeys(text for pool in pools for text in pool.taints)
    return tuple(
        Taint(key=parts["key"], value=parts["value"] or "", effect=parts["effect"])
        for parts in map(TAINT.match, texts)
        if parts
    )


def _fewest_nodes(pool: GpuPool) -> int:
    if pool.autoscale is not None:
        return pool.autoscale.min
    return 1 if pool.count is None else pool.count
