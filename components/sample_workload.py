# SPDX-License-Identifier: Apache-2.0
"""One workload of the user's choice, which takes GPUs as any other does: to see that nodes, plugins and rules work.

It starts when the readiness checks have succeeded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from .device_plugins import Nodes, tolerated
from .gpu_vendors import Taint
from .workspaces import WORKLOAD_ACCOUNT

NAME: Final = "gpu-sample"
LABELS: Final = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "gpuheap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWorkloadArgs:
    namespace: str
    image: str
    command: Sequence[str]
    resource: str
    gpus: int
    nodes: Nodes
    taints: Sequence[Taint]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    """The workspace and the readiness checks."""


class SampleWorkload(pulumi.ComponentResource):
    """A Deployment with one pod."""

    def __init__(
        self, name: str, args: SampleWorkloadArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:SampleWorkload", name, {}, opts)
        kubernetes.apps.v1.Deployment(
            name,
            metadata=ObjectMetaArgs(name=NAME, namespace=args.namespace, labels=LABELS),
            spec=kubernetes.apps.v1.DeploymentSpecArgs(
                replicas=1,
                # The old pod holds the GPUs that the new one needs.
                strategy=kubernetes.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=LabelSelectorArgs(match_labels=LABELS),
                template=core.PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels=LABELS), spec=_pod_spec(args)
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        self.register_outputs({"deployment": f"{args.namespace}/{NAME}"})


def _pod_spec(args: SampleWorkloadArgs) -> core.PodSpecArgs:
    container = core.ContainerArgs(
        name="sample",
        image=args.image,
        command=list(args.command) or None,
        resources=core.ResourceRequirementsArgs(limits={args.resource: str(args.gpus)}),
        security_context=core.SecurityContextArgs(allow_privilege_escalation=False),
    )
    return core.PodSpecArgs(
        service_account_name=WORKLOAD_ACCOUNT,
        automount_service_account_token=False,
        affinity=args.nodes.affinity(),
        tolerations=[tolerated(taint) for taint in args.taints],
        containers=[container],
    )
