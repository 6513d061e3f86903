# SPDX-License-Identifier: Apache-2.0
"""Gives each component its values: from the configuration, and from the components before it.

One file a part of the stack, one function a component. No decisions but those between new and existing.
"""

from .alerts import stack_alerts
from .cluster import cluster
from .devices import device_plugins, readiness, sample_workload
from .gpu import gpu_pools, local_storage
from .grafana import grafana, grafana_access, grafana_content
from .metrics import metrics_pipeline
from .place import place
from .placement import placement
from .private_link import private_link, private_link_service, pyroscope_url
from .profiling import inspektor_gadget, profiler_agent, pyroscope, pyroscope_namespace
from .workspaces import workspaces

__all__ = [
    "cluster",
    "device_plugins",
    "gpu_pools",
    "grafana",
    "grafana_access",
    "grafana_content",
    "inspektor_gadget",
    "local_storage",
    "metrics_pipeline",
    "place",
    "placement",
    "private_link",
    "private_link_service",
    "profiler_agent",
    "pyroscope",
    "pyroscope_namespace",
    "pyroscope_url",
    "readiness",
    "sample_workload",
    "stack_alerts",
    "workspaces",
]
