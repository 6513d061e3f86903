# SPDX-License-Identifier: Apache-2.0
"""Who reaches Pyroscope: its own parts, the profilers' pods, and the addresses of the Private Link Service.

Pyroscope asks nobody who they are, so this is what keeps other pods from reading and writing profiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.networking import v1 as networking

PODS: Final = {"app.kubernetes.io/name": "pyroscope"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Pods that push: by namespace and labels."""

    namespace: str
    labels: Mapping[str, str]


def network_policy(
    name: str,
    *,
    namespace: str,
    port: int,
    profilers: Sequence[Pods],
    private_link_ranges: pulumi.Input[Sequence[str]],
    opts: pulumi.ResourceOptions,
) -> networking.NetworkPolicy:
    """Admits those and nobody else. What Pyroscope itself asks, its storage account for one, is left free."""
    pushing = [
        networking.NetworkPolicyPeerArgs(
            namespace_selector=_selector({"kubernetes.io/metadata.name": pods.namespace}),
            pod_selector=_selector(pods.labels),
        )
        for pods in profilers
    ]
    # The load balancer leaves the source address as it is (externalTrafficPolicy), so it is one of the Private Link
    # Service's own.
    peers = pulumi.Output.from_input(private_link_ranges).apply(
        lambda ranges: [
            *pushing,
            *(
                networking.NetworkPolicyPeerArgs(ip_block=networking.IPBlockArgs(cidr=range_))
                for range_ in ranges
            ),
        ]
    )
    return networking.NetworkPolicy(
        name,
        metadata=kubernetes.meta.v1.ObjectMetaArgs(name="pyroscope", namespace=namespace),
        spec=networking.NetworkPolicySpecArgs(
            pod_selector=_selector(PODS),
            policy_types=["Ingress"],
            ingress=[
                networking.NetworkPolicyIngressRuleArgs(
                    from_=[networking.NetworkPolicyPeerArgs(pod_selector=_selector(PODS))]
                ),
                networking.NetworkPolicyIngressRuleArgs(
                    from_=peers,
                    ports=[networking.NetworkPolicyPortArgs(port=port, protocol="TCP")],
                ),
            ],
        ),
        opts=opts,
    )


def _selector(labels: Mapping[str, str]) -> kubernetes.meta.v1.LabelSelectorArgs:
    return kubernetes.meta.v1.LabelSelectorArgs(match_labels=labels)
