# SPDX-License-Identifier: Apache-2.0
"""gpuheap's own agent: one tracing pod on every GPU node.

Owns the pod's rights and settings. The names of settings are those of `gpuheap agent`; what the agent does is
in `agent/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core

from gpuheap.contract import DEFAULT_METRICS_PORT, DEFAULT_PUSH_INTERVAL_SECONDS

from .cluster import GPU_TAINT_KEY
from .settings.pools import SPOT_TAINT_KEY

NAMESPACE: Final = "gpuheap"
NAME: Final = "gpuheap-agent"
LABELS: Final = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "gpuheap"}

CAPABILITIES: Final = (
    "BPF",  # load programs, create maps
    "PERFMON",  # read kernel and user memory in them
    "SYS_ADMIN",  # attach uprobes by perf events; multi-uprobe links, from kernel 6.6, need it not
    "SYS_PTRACE",  # see other users' processes: /proc/PID/maps, /proc/PID/root, process_vm_readv
    "DAC_READ_SEARCH",  # read their programs and libraries, which may lie in directories closed to others
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerAgentArgs:
    image: pulumi.Input[str]
    pyroscope_url: str
    cluster_name: str
    node_selector: Mapping[str, str]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]


class ProfilerAgent(pulumi.ComponentResource):
    """The namespace, the account and the DaemonSet of the agent."""

    image: pulumi.Input[str]
    daemon_set: kubernetes.apps.v1.DaemonSet

    def __init__(
        self, name: str, args: ProfilerAgentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:ProfilerAgent", name, {}, opts)
        self.image = args.image
        namespace = core.Namespace(
            f"{name}-namespace",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=NAMESPACE,
                # Host processes and BPF are beyond what `baseline` allows.
                labels={"pod-security.kubernetes.io/enforce": "privileged"},
            ),
            opts=self._child(args, *args.depends_on),
        )
        account = core.ServiceAccount(
            f"{name}-account",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE),
            automount_service_account_token=False,
            opts=self._child(args, namespace),
        )
        self.daemon_set = kubernetes.apps.v1.DaemonSet(
            name,
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE, labels=LABELS),
            spec=kubernetes.apps.v1.DaemonSetSpecArgs(
                selector=kubernetes.meta.v1.LabelSelectorArgs(match_labels=LABELS),
                update_strategy=kubernetes.apps.v1.DaemonSetUpdateStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=kubernetes.apps.v1.RollingUpdateDaemonSetArgs(max_unavailable="25%"),
                ),
                template=self._pod(args),
            ),
            opts=self._child(args, account),
        )
        self.register_outputs({"daemonSet": f"{NAMESPACE}/{NAME}"})

    def _child(self, args: ProfilerAgentArgs, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=after)

    def _pod(self, args: ProfilerAgentArgs) -> core.PodTemplateSpecArgs:
        return core.PodTemplateSpecArgs(
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                labels=LABELS,
                annotations={
                    "prometheus.io/scrape": "true",
                    "prometheus.io/port": str(DEFAULT_METRICS_PORT),
                    "prometheus.io/path": "/metrics",
                },
            ),
            spec=core.PodSpecArgs(
                service_account_name=NAME,
                automount_service_account_token=False,
                # Process ids in the kernel's events are the host's.
                host_pid=True,
                node_selector=args.node_selector,
                tolerations=[
                    core.TolerationArgs(key=key, operator="Exists", effect="NoSchedule")
                    # One by one: AKS Automatic refuses pods that tolerate whatever there is.
                    for key in (GPU_TAINT_KEY, SPOT_TAINT_KEY)
                ],
                containers=[self._container(args)],
            ),
        )

    def _container(self, args: ProfilerAgentArgs) -> core.ContainerArgs:
        return core.ContainerArgs(
            name="agent",
            image=args.image,
            args=["agent"],
            env=environment(args),
            ports=[core.ContainerPortArgs(name="metrics", container_port=DEFAULT_METRICS_PORT)],
            liveness_probe=_probe("/healthz", period_seconds=20),
            readiness_probe=_probe("/readyz", period_seconds=5),
            resources=core.ResourceRequirementsArgs(
                requests={"cpu": "50m", "memory": "192Mi"},
                # BPF maps count as memory of the pod that made them.
                limits={"memory": "1Gi"},
            ),
            security_context=core.SecurityContextArgs(
                run_as_user=0,
                privileged=False,
                allow_privilege_escalation=False,
                read_only_root_filesystem=True,
                capabilities=core.CapabilitiesArgs(drop=["ALL"], add=list(CAPABILITIES)),
                seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
            ),
        )


def environment(args: ProfilerAgentArgs) -> list[core.EnvVarArgs]:
    """The settings of `gpuheap agent`."""
    return [
        core.EnvVarArgs(name="GPUHEAP_PYROSCOPE_URL", value=args.pyroscope_url),
        core.EnvVarArgs(name="GPUHEAP_INTERVAL_SECONDS", value=str(DEFAULT_PUSH_INTERVAL_SECONDS)),
        core.EnvVarArgs(name="GPUHEAP_METRICS_ADDRESS", value=f"0.0.0.0:{DEFAULT_METRICS_PORT}"),
        core.EnvVarArgs(name="GPUHEAP_CLUSTER", value=args.cluster_name),
        core.EnvVarArgs(
            name="GPUHEAP_NODE",
            value_from=core.EnvVarSourceArgs(
                field_ref=core.ObjectFieldSelectorArgs(field_path="spec.nodeName")
            ),
        ),
    ]


def _probe(path: str, *, period_seconds: int) -> core.ProbeArgs:
    return core.ProbeArgs(
        http_get=core.HTTPGetActionArgs(path=path, port=DEFAULT_METRICS_PORT), period_seconds=period_seconds
    )
