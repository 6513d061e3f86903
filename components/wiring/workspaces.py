# SPDX-License-Identifier: Apache-2.0
"""The namespaces of GPU workloads."""

from collections.abc import Mapping

from components.cluster import Cluster
from components.config import StackConfig
from components.gpu_vendors import GPU_VENDORS
from components.network_holes import Egress
from components.settings import workspaces as settings
from components.settings.cluster import NewCluster
from components.workspaces import Workspace, Workspaces, WorkspacesArgs


def workspaces(config: StackConfig, cluster: Cluster) -> list[Workspaces]:
    """Those of the configuration; without any, the defaults on a new cluster, and none on one that was there."""
    chosen = config.workspaces
    if chosen is None:
        chosen = list(settings.DEFAULT_WORKSPACES) if isinstance(config.cluster, NewCluster) else []
    args = WorkspacesArgs(
        workspaces=[_workspace(config, each) for each in chosen],
        provider=cluster.provider,
        depends_on=cluster.ready,
    )
    return [Workspaces("workspaces", args)] if chosen else []


def _workspace(config: StackConfig, chosen: settings.Workspace) -> Workspace:
    defaults = chosen.container_defaults
    return Workspace(
        name=chosen.name,
        pod_security=chosen.pod_security,
        gpus=shares(config, chosen.gpus),
        container_requests={"cpu": defaults.cpu_request, "memory": defaults.memory_request},
        container_limits={"memory": defaults.memory_limit},
        same_namespace=chosen.same_namespace,
        egress=[
            Egress(
                name=each.name,
                ranges=tuple(each.ranges),
                namespaces=tuple(each.namespaces),
                ports=tuple(each.ports),
            )
            for each in chosen.egress
        ],
        metrics_port=chosen.metrics_port,
        priority=chosen.priority,
        labels=chosen.labels,
    )


def shares(config: StackConfig, given: Mapping[str, int] | None) -> Mapping[str, int]:
    """A number for every resource that the cluster is known to offer: a name that a quota lacks is not limited."""
    offered = dict.fromkeys(name for pool in config.gpu_pools for name in pool.resource_names)
    nothing = dict.fromkeys([*(vendor.whole for vendor in GPU_VENDORS), *offered], 0)
    if given is None:
        return {**nothing, **dict.fromkeys(offered, settings.DEFAULT_GPUS)}
    return {**nothing, **given}
