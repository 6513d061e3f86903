# SPDX-License-Identifier: Apache-2.0
"""Whether a pool's nodes can compute: a Job that must succeed before anything relies on them.

Owns the Job; the checks themselves are the scripts in `checks/`. The Job asks for a GPU as any workload does, so it
runs only where the device plugin offers one; its output is what `pulumi up` shows when it fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.batch import v1 as batch
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from .device_plugins import Nodes, tolerated
from .gpu_vendors import GpuVendor, Taint
from .readiness_words import said_when_time_is_up, words

NAMESPACE: Final = "gpu-readiness"
CHECKS: Final = Path(__file__).parent / "checks"
DEADLINE_SECONDS: Final = 600
"""A new node's image pull and device plugin included. Then the Job fails; `readiness_words.py` says what that means."""

ENGINE_PATIENCE: Final = "15m"
"""Longer than the Job's deadline: the Job's own words say more than the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCheck:
    """What is asked of one pool."""

    pool: str
    vendor: GpuVendor
    resource: str
    """What its nodes offer: whole devices or slices."""
    nodes: Nodes
    count: int
    """How many nodes: the Job has a pod for each, no two at a time on one."""
    taints: tuple[Taint, ...]
    minimum_driver: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessArgs:
    checks: Sequence[PoolCheck]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    """Pools and device plugins."""


class Readiness(pulumi.ComponentResource):
    """Done when each pool has succeeded in as many checks as it has nodes."""

    jobs: Sequence[batch.Job]

    def __init__(self, name: str, args: ReadinessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Readiness", name, {}, opts)
        namespace = core.Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(
                name=NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "baseline"}
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        self.jobs = [self._job(name, args, check, namespace) for check in args.checks]
        self.register_outputs({"jobs": [f"{NAMESPACE}/{check.pool}" for check in args.checks]})

    def _job(self, name: str, args: ReadinessArgs, check: PoolCheck, namespace: core.Namespace) -> batch.Job:
        labels = {"app.kubernetes.io/name": "gpu-readiness", "gpuheap/pool": check.pool}
        text = words(check.pool, check.resource, check.nodes, NAMESPACE, DEADLINE_SECONDS)
        return batch.Job(
            f"{name}-{check.pool}",
            metadata=ObjectMetaArgs(
                name=check.pool,
                namespace=NAMESPACE,
                labels=labels,
                # A check that failed is made anew by the next `up`, and is not waited for once more.
                annotations={"pulumi.com/replaceUnready": "true"},
            ),
            spec=batch.JobSpecArgs(
                completions=check.count,
                parallelism=check.count,
                # What a node says does not change by asking again.
                backoff_limit=0,
                active_deadline_seconds=DEADLINE_SECONDS,
                template=core.PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels=labels), spec=pod_spec(check, labels)
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                depends_on=[namespace],
                # The name is the pool's.
                delete_before_replace=True,
                hooks=said_when_time_is_up(f"{name}-{check.pool}-words", text, self),
                custom_timeouts=pulumi.CustomTimeouts(create=ENGINE_PATIENCE, update=ENGINE_PATIENCE),
            ),
        )


def pod_spec(check: PoolCheck, labels: dict[str, str]) -> core.PodSpecArgs:
    affinity = check.nodes.affinity()
    # No two at a time on a node, so that each node is asked.
    affinity.pod_anti_affinity = core.PodAntiAffinityArgs(
        required_during_scheduling_ignored_during_execution=[
            core.PodAffinityTermArgs(
                topology_key="kubernetes.io/hostname",
                label_selector=LabelSelectorArgs(match_labels=labels),
            )
        ]
    )
    return core.PodSpecArgs(
        restart_policy="Never",
        automount_service_account_token=False,
        affinity=affinity,
        tolerations=[tolerated(taint) for taint in check.taints],
        containers=[_container(check)],
    )


def _container(check: PoolCheck) -> core.ContainerArgs:
    return core.ContainerArgs(
        name="check",
        image=check.image,
        command=["sh", "-c", (CHECKS / f"{check.vendor.name}.sh").read_text()],
        env=[
            core.EnvVarArgs(name="MINIMUM_DRIVER", value=check.minimum_driver),
            core.EnvVarArgs(name="DEVICES", value="1"),
            core.EnvVarArgs(
                name="NODE",
                value_from=core.EnvVarSourceArgs(
                    field_ref=core.ObjectFieldSelectorArgs(field_path="spec.nodeName")
                ),
            ),
        ],
        resources=core.ResourceRequirementsArgs(
            requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi", check.resource: "1"}
        ),
        # The last lines of a failed check become the pod's status, where the engine finds them.
        termination_message_policy="FallbackToLogsOnError",
        security_context=core.SecurityContextArgs(allow_privilege_escalation=False),
    )
