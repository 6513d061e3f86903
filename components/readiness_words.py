# SPDX-License-Identifier: Apache-2.0
"""What `up` says of a readiness check that never ran: of such a Job the engine tells only that its time was up."""

from collections.abc import Callable
from typing import Final

import pulumi
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import monitor_supports_feature

from .device_plugins import NAMESPACE as PLUGINS_NAMESPACE
from .device_plugins import Nodes

TIME_IS_UP: Final = "DeadlineExceeded"
"""The Job controller's word, as the Kubernetes provider hands it on."""


def words(pool: str, resource: str, nodes: Nodes, namespace: str, deadline_seconds: int) -> str:
    """What probably happened, and how to see it."""
    found = (
        f"the nodes of pool {pool} are not ready: within {deadline_seconds} s not all of them ran the check, which "
        f"asks for one {resource}. Either there are fewer nodes than the pool asks for, or on one of them"
    )
    lines = (
        found,
        "  - the driver is missing: with driver: None an operator must bring it",
        "  - the device plugin does not run, or calls the GPU unhealthy",
        "  - workloads hold all GPUs",
        "what to do: look which it is, and run `pulumi up` again when it is mended",
        f"  kubectl -n {namespace} get events",
        f"  kubectl describe nodes -l '{nodes.label} in ({','.join(nodes.values)})'",
        f"  kubectl -n {PLUGINS_NAMESPACE} logs --prefix -l app.kubernetes.io/part-of=gpuheap",
    )
    return "\n".join(lines)


def said_when_time_is_up(
    name: str, text: str, resource: pulumi.Resource
) -> pulumi.ResourceHookBinding | None:
    """A binding for the Job's options; None with an engine that is too old to call programs back."""
    if not monitor_supports_feature(resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS):
        return None
    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(name, _says(text, resource))])


def _says(text: str, resource: pulumi.Resource) -> Callable[[pulumi.ErrorHookArgs], bool]:
    def say(args: pulumi.ErrorHookArgs) -> bool:
        if any(TIME_IS_UP in error for error in args.errors):
            pulumi.log.error(text, resource)
        return False  # what a node says does not change by asking again

    return say
