# SPDX-License-Identifier: Apache-2.0
"""The alerts, for what the stack has."""

from alerts.capacity import gpu_bytes
from alerts.rules import Capacity, Thresholds, Watched, alerts
from components.alerts import Alerts, AlertsArgs
from components.cluster import Cluster
from components.config import StackConfig
from components.inspektor_gadget import DAEMON_SET, GADGET_NAMESPACE, InspektorGadget
from components.metrics_pipeline import MetricsPipeline
from components.private_link import PrivateLink
from components.profiler_agent import NAME as AGENT
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE

from .place import Place
from .profiling import pyroscope_namespace


def stack_alerts(
    config: StackConfig,
    place: Place,
    cluster: Cluster,
    metrics: MetricsPipeline,
    gadget: InspektorGadget | None,
    private_link: PrivateLink,
) -> Alerts:
    chosen = config.alerts
    rules = alerts(
        Thresholds(
            capacities=_capacities(config),
            near_capacity_percent=chosen.near_capacity_percent,
            growth_bytes=chosen.growth_mib << 20,
        ),
        Watched(
            agent=f"{AGENT_NAMESPACE}/{AGENT}" if "gpuheap" in config.profilers else None,
            gadget=f"{GADGET_NAMESPACE}/{DAEMON_SET}" if gadget else None,
            pyroscope_namespace=pyroscope_namespace(config),
        ),
        runbook=chosen.runbook,
    )
    return Alerts(
        "alerts",
        AlertsArgs(
            name=config.name,
            resource_group_name=place.resource_group.name,
            location=config.location,
            workspace_id=metrics.workspace.id,
            cluster_name=cluster.cluster_name,
            rules=rules,
            runbook=chosen.runbook,
            # The Private Link Service is in our resource group; the extension's events are those of its cluster.
            watched_ids=[place.resource_group.id, cluster.id],
            emails=chosen.emails,
            action_group_ids=chosen.action_groups,
            depends_on=[private_link.approval, *([gadget.extension] if gadget else [])],
            tags=config.tags,
        ),
    )


def _capacities(config: StackConfig) -> list[Capacity]:
    """What is known of each pool's GPUs; AKS names nodes after their pool."""
    if config.alerts.gpu_memory_gib is not None:
        return [Capacity(nodes=".*", gpu_bytes=int(config.alerts.gpu_memory_gib * (1 << 30)))]
    known = [
        (pool.name, gpu_bytes(pool.vm_size, pool.mig.profile if pool.mig else None))
        for pool in config.gpu_pools
    ]
    return [Capacity(nodes=f"aks-{name}-.*", gpu_bytes=size) for name, size in known if size]
