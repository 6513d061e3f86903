# SPDX-License-Identifier: Apache-2.0
"""The NetworkPolicies of a workspace: nothing in or out but the holes that work needs. Values in, specs out."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
DNS_PODS: Final = {"k8s-app": "kube-dns"}
"""CoreDNS, which keeps the name of its predecessor: https://learn.microsoft.com/azure/aks/coredns-custom"""

METRICS_NAMESPACE: Final = "kube-system"
"""Where Azure Monitor's collectors run."""

PRIVATE: Final = tuple(
    map(
        ipaddress.IPv4Network,
        # Networks of our own, of carriers, and the link's own: the last has Azure's metadata service, which hands out
        # the identities of the node.
        ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    )
)
AZURE_WIRE_SERVER: Final = ipaddress.IPv4Network("168.63.129.16/32")
"""Azure's host agent: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """One way out, by name."""

    name: str
    ranges: tuple[str, ...] = ()
    """IPv4 ranges. What is private in a wider range is left out: to reach it, name it."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of this cluster."""
    ports: tuple[int, ...] = ()
    """TCP; none: all ports."""


def policies(
    *, same_namespace: bool, egress: Sequence[Egress], metrics_port: int | None
) -> Mapping[str, dict[str, Any]]:
    """The spec of each policy, by name."""
    everybody: dict[str, Any] = {"podSelector": {}}
    specs: dict[str, dict[str, Any]] = {
        "default-deny": everybody | {"policyTypes": ["Ingress", "Egress"]},
        "allow-dns": everybody
        | {
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [_namespace(METRICS_NAMESPACE) | {"podSelector": {"matchLabels": DNS_PODS}}],
                    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
                }
            ],
        },
    }
    if same_namespace:
        specs["allow-same-namespace"] = everybody | {
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}]}],
            "egress": [{"to": [{"podSelector": {}}]}],
        }
    if metrics_port is not None:
        specs["allow-metrics"] = everybody | {
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [_namespace(METRICS_NAMESPACE)],
                    "ports": [{"protocol": "TCP", "port": metrics_port}],
                }
            ],
        }
    for each in egress:
        specs[f"allow-egress-{each.name}"] = everybody | {
            "policyTypes": ["Egress"],
            "egress": [_rule(each)],
        }
    return specs


def _rule(egress: Egress) -> dict[str, Any]:
    rule: dict[str, Any] = {"to": [*map(_block, egress.ranges), *map(_namespace, egress.namespaces)]}
    if egress.ports:
        rule["ports"] = [{"protocol": "TCP", "port": port} for port in egress.ports]
    return rule


def _block(text: str) -> dict[str, Any]:
    network = ipaddress.IPv4Network(text)
    inside = [each for each in (*PRIVATE, AZURE_WIRE_SERVER) if each != network and each.subnet_of(network)]
    return {"ipBlock": {"cidr": text, "except": [str(each) for each in inside]} if inside else {"cidr": text}}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: name}}}
