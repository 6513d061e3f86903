# SPDX-License-Identifier: Apache-2.0
"""The API server refuses pods that do not belong where they would go: a ValidatingAdmissionPolicy and its
binding for each vendor, and one for all.

Owns which types are looked at, whom the policies spare, and what a refusal is. The rules themselves are in
`placement_rules.py`; nodes get their taints in `cluster.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.admissionregistration import v1 as admission
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, LabelSelectorRequirementArgs, ObjectMetaArgs

from .gpu_vendors import GpuVendor, Taint
from .inspektor_gadget import GADGET_NAMESPACE
from .placement_rules import MATCH_CONDITIONS, OWNERS, Owner, Rules, general_rules, vendor_rules
from .profiler_agent import NAMESPACE as AGENT_NAMESPACE

Action = Literal["Deny", "Warn", "Audit"]
"""Deny refuses; Warn accepts, and the client prints the message; Audit accepts, and the message is in the audit log."""

NAME: Final = "gpuheap-placement"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on each namespace, and by nobody else."""

KUBERNETES_NAMESPACES: Final = ("kube-node-lease", "kube-public", "kube-system")
AKS_NAMESPACES: Final = (
    # https://learn.microsoft.com/azure/aks/use-azure-policy, https://learn.microsoft.com/azure/aks/use-network-policies,
    # https://learn.microsoft.com/azure/aks/app-routing, https://learn.microsoft.com/azure/aks/istio-about
    "aks-command",
    "aks-istio-egress",
    "aks-istio-ingress",
    "aks-istio-system",
    "app-routing-system",
    "azure-arc",
    "calico-system",
    "gatekeeper-system",
    "tigera-operator",
)
PROFILER_NAMESPACES: Final = (AGENT_NAMESPACE, GADGET_NAMESPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementArgs:
    taints: Mapping[GpuVendor, Taint]
    """The vendors whose GPUs the cluster has, or may get, with the taint of their nodes."""
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    action: Action = "Deny"
    exempt_namespaces: Sequence[str] = ()
    """Beside those of Kubernetes, AKS and the profilers."""
    custom_owners: Sequence[Owner] = field(default=())
    """Types of operators that make pods: what is refused, is refused there, and not only in the operator's log."""


class Placement(pulumi.ComponentResource):
    """GPU nodes run what asks for a GPU, and nothing else."""

    bindings: Sequence[pulumi.Resource]
    """From then on the rules are in force."""

    def __init__(self, name: str, args: PlacementArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Placement", name, {}, opts)
        owners = (*OWNERS, *args.custom_owners)
        policies = {vendor.name: vendor_rules(vendor, args.taints, owners) for vendor in args.taints}
        policies["general"] = general_rules(args.taints, owners)
        self.bindings = [
            self._binding(name, args, policy, rules, owners) for policy, rules in policies.items()
        ]
        self.register_outputs({"policies": [f"{NAME}-{policy}" for policy in policies]})

    def _binding(
        self, name: str, args: PlacementArgs, policy: str, rules: Rules, owners: Sequence[Owner]
    ) -> pulumi.Resource:
        exempt = LabelSelectorRequirementArgs(
            key=NAMESPACE_NAME_LABEL, operator="NotIn", values=exempt_namespaces(args.exempt_namespaces)
        )
        return admission.ValidatingAdmissionPolicyBinding(
            f"{name}-{policy}-binding",
            metadata=ObjectMetaArgs(name=f"{NAME}-{policy}"),
            spec=admission.ValidatingAdmissionPolicyBindingSpecArgs(
                policy_name=self._policy(name, args, policy, rules, owners).metadata.name,
                validation_actions=[args.action],
                match_resources=admission.MatchResourcesArgs(
                    namespace_selector=LabelSelectorArgs(match_expressions=[exempt])
                ),
            ),
            opts=self._child(args),
        )

    def _policy(
        self, name: str, args: PlacementArgs, policy: str, rules: Rules, owners: Sequence[Owner]
    ) -> admission.ValidatingAdmissionPolicy:
        return admission.ValidatingAdmissionPolicy(
            f"{name}-{policy}",
            metadata=ObjectMetaArgs(name=f"{NAME}-{policy}"),
            spec=admission.ValidatingAdmissionPolicySpecArgs(
                # A rule that cannot be evaluated must not let pods through.
                failure_policy="Fail",
                match_constraints=admission.MatchResourcesArgs(resource_rules=_resource_rules(owners)),
                match_conditions=[
                    admission.MatchConditionArgs(name=condition, expression=expression)
                    for condition, expression in MATCH_CONDITIONS.items()
                ],
                variables=[
                    admission.VariableArgs(name=variable, expression=expression)
                    for variable, expression in rules.variables.items()
                ],
                validations=[
                    admission.ValidationArgs(
                        expression=rule.expression,
                        message=rule.message,
                        message_expression=rule.message_expression,
                    )
                    for rule in rules.validations
                ],
            ),
            opts=self._child(args),
        )

    def _child(self, args: PlacementArgs) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on)


def exempt_namespaces(more: Sequence[str]) -> list[str]:
    """Where the rules do not hold: Kubernetes' own namespaces, those that AKS manages, the profilers', and `more`."""
    return sorted({*KUBERNETES_NAMESPACES, *AKS_NAMESPACES, *PROFILER_NAMESPACES, *more})


def _resource_rules(owners: Sequence[Owner]) -> list[admission.NamedRuleWithOperationsArgs]:
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for owner in owners:
        groups.setdefault((owner.group, owner.versions), []).append(owner.resource)
    return [
        admission.NamedRuleWithOperationsArgs(
            api_groups=[group],
            api_versions=list(versions),
            # An update can add a toleration to a pod that waits for a node.
            operations=["CREATE", "UPDATE"],
            resources=resources,
        )
        for (group, versions), resources in groups.items()
    ]
