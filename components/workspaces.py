# SPDX-License-Identifier: Apache-2.0
"""Where GPU workloads live: a namespace for each class, with its share of the GPUs, its defaults and its borders.

What may cross the borders is in `network_holes.py`; which nodes a pod may go to is decided in `placement.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from .network_holes import Egress, policies

LABEL: Final = "gpuheap/workspace"
WORKLOAD_ACCOUNT: Final = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    name: str
    pod_security: str
    gpus: Mapping[str, int]
    """How many of each resource all pods together may hold. A name that is not here is not limited."""
    container_requests: Mapping[str, str]
    container_limits: Mapping[str, str]
    """What a container gets that says nothing."""
    same_namespace: bool = True
    egress: Sequence[Egress] = ()
    metrics_port: int | None = None
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacesArgs:
    workspaces: Sequence[Workspace]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]


class Workspaces(pulumi.ComponentResource):
    """The namespaces, complete with what limits them."""

    ready: Mapping[str, Sequence[pulumi.Resource]]
    """By namespace: what must be there before a workload is."""

    def __init__(self, name: str, args: WorkspacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Workspaces", name, {}, opts)
        self.ready = {
            workspace.name: self._workspace(f"{name}-{workspace.name}", args, workspace)
            for workspace in args.workspaces
        }
        self.register_outputs({"namespaces": [workspace.name for workspace in args.workspaces]})

    def _workspace(self, name: str, args: WorkspacesArgs, workspace: Workspace) -> list[pulumi.Resource]:
        namespace = core.Namespace(
            name,
            metadata=ObjectMetaArgs(name=workspace.name, labels=_labels(workspace)),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        inside = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[namespace])
        return [
            namespace,
            self._quota(name, workspace, inside),
            self._defaults(name, workspace, inside),
            *self._accounts(name, workspace, inside),
            *self._network_policies(name, workspace, inside),
            *self._priority(name, workspace, args),
        ]

    def _quota(self, name: str, workspace: Workspace, inside: pulumi.ResourceOptions) -> core.ResourceQuota:
        return core.ResourceQuota(
            f"{name}-quota",
            metadata=ObjectMetaArgs(name="gpus", namespace=workspace.name),
            spec=core.ResourceQuotaSpecArgs(
                # Of extended resources only this form limits anything; bare names and limits are accepted and ignored.
                hard={f"requests.{resource}": str(count) for resource, count in workspace.gpus.items()}
            ),
            opts=inside,
        )

    def _defaults(self, name: str, workspace: Workspace, inside: pulumi.ResourceOptions) -> core.LimitRange:
        return core.LimitRange(
            f"{name}-defaults",
            metadata=ObjectMetaArgs(name="defaults", namespace=workspace.name),
            spec=core.LimitRangeSpecArgs(
                limits=[
                    core.LimitRangeItemArgs(
                        type="Container",
                        default_request=dict(workspace.container_requests),
                        default=dict(workspace.container_limits),
                    )
                ]
            ),
            opts=inside,
        )

    def _accounts(
        self, name: str, workspace: Workspace, inside: pulumi.ResourceOptions
    ) -> list[core.ServiceAccount]:
        # Kubernetes makes `default` itself; by server-side apply it becomes ours, and pods that name no account get no
        # token either. It goes with its namespace: deleted alone it would be there again at once, and the engine would
        # wait in vain.
        stays = pulumi.ResourceOptions(retain_on_delete=True)
        options = {"default": pulumi.ResourceOptions.merge(inside, stays), WORKLOAD_ACCOUNT: inside}
        return [
            core.ServiceAccount(
                f"{name}-{account}",
                metadata=ObjectMetaArgs(name=account, namespace=workspace.name),
                automount_service_account_token=False,
                opts=opts,
            )
            for account, opts in options.items()
        ]

    def _network_policies(
        self, name: str, workspace: Workspace, inside: pulumi.ResourceOptions
    ) -> list[kubernetes.networking.v1.NetworkPolicy]:
        specs = policies(
            same_namespace=workspace.same_namespace,
            egress=workspace.egress,
            metrics_port=workspace.metrics_port,
        )
        return [
            kubernetes.networking.v1.NetworkPolicy(
                f"{name}-{policy}",
                metadata=ObjectMetaArgs(name=policy, namespace=workspace.name),
                # As the API has it; the SDK has other names for the same.
                spec=cast("Any", spec),
                opts=inside,
            )
            for policy, spec in specs.items()
        ]

    def _priority(
        self, name: str, workspace: Workspace, args: WorkspacesArgs
    ) -> list[kubernetes.scheduling.v1.PriorityClass]:
        if workspace.priority is None:
            return []
        return [
            kubernetes.scheduling.v1.PriorityClass(
                f"{name}-priority",
                metadata=ObjectMetaArgs(name=workspace.name),
                value=workspace.priority,
                description=f"Workloads of the namespace {workspace.name}",
                opts=pulumi.ResourceOptions(
                    parent=self,
                    provider=args.provider,
                    depends_on=args.depends_on,
                    # Its value cannot be changed, and its name is its identity.
                    delete_before_replace=True,
                ),
            )
        ]


def _labels(workspace: Workspace) -> dict[str, str]:
    levels = {"enforce": workspace.pod_security, "warn": "restricted", "audit": "restricted"}
    return {
        **workspace.labels,
        LABEL: workspace.name,
        **{f"pod-security.kubernetes.io/{mode}": level for mode, level in levels.items()},
    }
