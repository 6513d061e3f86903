# SPDX-License-Identifier: Apache-2.0
"""What NetworkPolicy objects do to real packets between pods of the real node."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from lightkube import codecs
from lightkube.resources.core_v1 import Pod

from tests.localcloud.node.conftest import NodeCluster, wait_for
from tests.localcloud.node.pod_network import Protocol, reaches, serving

DNS_PORT = 53
WEB_PORT = 8080
METRICS_PORT = 9400


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A running pod: one of its processes, and its address."""

    process: int
    address: str

    def reaches(self, other: "Place", port: int = WEB_PORT, protocol: Protocol = "TCP") -> bool:
        return reaches(self.process, other.address, port, protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """Two workspaces, one guarded and one not, the cluster's DNS and a scraper; all listen."""

    cluster: NodeCluster
    guarded: str
    worker: Place
    peer: Place
    stranger: Place
    dns: Place
    scraper: Place


@pytest.fixture(scope="module")
def town(node_cluster: NodeCluster) -> Iterator[Town]:
    guarded = node_cluster.namespace({"workload": "training"})
    other = node_cluster.namespace({"workload": "inference"})
    monitoring = node_cluster.namespace({"team": "monitoring"})
    node_cluster.wait_for_default_account("kube-system")
    made = {
        "worker": (guarded, {"app": "worker"}),
        "peer": (guarded, {"app": "peer"}),
        "stranger": (other, {"app": "worker"}),
        "dns": ("kube-system", {"k8s-app": "kube-dns"}),
        "scraper": (monitoring, {"app": "scraper"}),
    }
    pods = {
        name: node_cluster.pod(namespace, name, "sleep", "10000", labels=labels)
        for name, (namespace, labels) in made.items()
    }
    places = {name: place(node_cluster, pod) for name, pod in pods.items()}
    with ExitStack() as stack:
        for each in places.values():
            for port in (WEB_PORT, METRICS_PORT, DNS_PORT):
                stack.enter_context(serving(each.process, port, "TCP"))
            stack.enter_context(serving(each.process, DNS_PORT, "UDP"))
        town = Town(cluster=node_cluster, guarded=guarded, **places)
        assert town.stranger.reaches(town.worker), "without a policy, every pod reaches every other"
        assert town.worker.reaches(town.dns, DNS_PORT, "UDP")
        yield town
        node_cluster.kubernetes.delete(Pod, "dns", namespace="kube-system")


def place(node_cluster: NodeCluster, pod: Pod) -> Place:
    running = node_cluster.wait_for_phase(pod, "Running")
    assert running.status
    assert running.status.podIP
    assert running.metadata
    assert running.metadata.uid
    return Place(process=node_cluster.node.processes(running.metadata.uid)[-1], address=running.status.podIP)


def apply(town: Town, name: str, spec: dict[str, Any]) -> None:
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": town.guarded},
        "spec": spec,
    }
    town.cluster.kubernetes.create(codecs.from_dict(policy))


@pytest.fixture(scope="module")
def closed(town: Town) -> Town:
    """The guarded workspace with the policy that denies everything, both ways."""
    apply(town, "default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
    wait_for("the policy's effect", lambda: not town.stranger.reaches(town.worker))
    return town


def test_default_deny_lets_no_packet_in_or_out(closed: Town) -> None:
    everybody = {
        "peer": closed.peer,
        "stranger": closed.stranger,
        "dns": closed.dns,
        "scraper": closed.scraper,
    }
    inwards = {name: other.reaches(closed.worker) for name, other in everybody.items()}
    outwards = {name: closed.worker.reaches(other) for name, other in everybody.items()}
    assert inwards == dict.fromkeys(everybody, False)
    assert outwards == dict.fromkeys(everybody, False)
    assert not closed.worker.reaches(closed.dns, DNS_PORT, "UDP")


def test_other_workspaces_go_on_as_before(closed: Town) -> None:
    assert closed.stranger.reaches(closed.dns)
    assert closed.scraper.reaches(closed.stranger)


@pytest.fixture(scope="module")
def with_holes(closed: Town) -> Town:
    """The same with holes: DNS, the workspace itself, metrics for the scraper, one address block."""
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]
    apply(
        closed,
        "allow-dns",
        {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [dns], "ports": ports}]},
    )
    itself: list[dict[str, Any]] = [{"podSelector": {}}]
    apply(
        closed,
        "allow-same-namespace",
        {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": itself}],
            "egress": [{"to": itself}],
        },
    )
    scraper = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    metrics = [{"protocol": "TCP", "port": METRICS_PORT}]
    apply(
        closed,
        "allow-metrics",
        {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [scraper], "ports": metrics}],
        },
    )
    block = [{"ipBlock": {"cidr": f"{closed.scraper.address}/32"}}]
    apply(
        closed,
        "allow-downloads",
        {
            "podSelector": {"matchLabels": {"app": "worker"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": block, "ports": [{"protocol": "TCP", "port": WEB_PORT}]}],
        },
    )
    wait_for(
        "the holes",
        lambda: closed.worker.reaches(closed.scraper) and closed.worker.reaches(closed.peer),
    )
    return closed


def test_dns_is_reached_over_both_protocols_and_on_no_other_port(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.dns, DNS_PORT, "UDP")
    assert with_holes.worker.reaches(with_holes.dns, DNS_PORT, "TCP")
    assert not with_holes.worker.reaches(with_holes.dns, WEB_PORT)


def test_pods_of_one_workspace_reach_each_other(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.peer)
    assert with_holes.peer.reaches(with_holes.worker)


def test_pods_of_another_workspace_reach_nothing(with_holes: Town) -> None:
    assert not with_holes.stranger.reaches(with_holes.worker, WEB_PORT)
    assert not with_holes.stranger.reaches(with_holes.worker, METRICS_PORT)
    assert not with_holes.worker.reaches(with_holes.stranger)


def test_the_scraper_reaches_the_port_of_metrics_and_no_other(with_holes: Town) -> None:
    assert with_holes.scraper.reaches(with_holes.worker, METRICS_PORT)
    assert not with_holes.scraper.reaches(with_holes.worker, WEB_PORT)


def test_a_named_address_is_reached_by_the_chosen_pods_on_the_chosen_port(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.scraper, WEB_PORT)
    assert not with_holes.worker.reaches(with_holes.scraper, METRICS_PORT)
    assert not with_holes.peer.reaches(with_holes.scraper, WEB_PORT)
