# SPDX-License-Identifier: Apache-2.0
"""What the network policies of a workspace do to real packets between pods of the real node."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from lightkube import codecs
from lightkube.resources.core_v1 import Pod

from components.network_holes import Egress, policies
from tests.localcloud.node.conftest import NodeCluster
from tests.localcloud.node.pod_network import Protocol, reaches, serving
from tests.waiting import wait_for

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
    """A guarded workspace, another one, the cluster's DNS and scraper, a model store, the internet, and what Azure
    tells nodes under addresses of its own; all listen.
    """

    cluster: NodeCluster
    guarded: str
    store_namespace: str
    worker: Place
    peer: Place
    stranger: Place
    dns: Place
    scraper: Place
    store: Place
    internet: Place
    metadata: Place
    host_agent: Place


@pytest.fixture(scope="module")
def town(node_cluster: NodeCluster) -> Iterator[Town]:
    guarded, other, store = (node_cluster.namespace() for _ in range(3))
    node_cluster.wait_for_default_account("kube-system")
    made = {
        "worker": (guarded, {"app": "worker"}),
        "peer": (guarded, {"app": "peer"}),
        "stranger": (other, {"app": "worker"}),
        "dns": ("kube-system", {"k8s-app": "kube-dns"}),
        "scraper": ("kube-system", {"app": "scraper"}),
        "store": (store, {"app": "store"}),
        "internet": (other, {"app": "internet"}),
    }
    pods = {
        name: node_cluster.pod(namespace, name, "sleep", "10000", labels=labels)
        for name, (namespace, labels) in made.items()
    }
    places = {name: place(node_cluster, pod) for name, pod in pods.items()}
    # Else the kernel tells a sender that it is refused once a second at most.
    limit = "/proc/sys/net/ipv4/icmp_ratelimit"
    node_cluster.node.namespaces.run(["sh", "-c", f"echo 0 >{limit}"])
    host = places.pop("internet")
    outside = {name: at_address(node_cluster, host, address) for name, address in OUTSIDE.items()}
    with ExitStack() as stack:
        for each in (*places.values(), host):
            for port in (WEB_PORT, METRICS_PORT, DNS_PORT):
                stack.enter_context(serving(each.process, port, "TCP"))
            stack.enter_context(serving(each.process, DNS_PORT, "UDP"))
        town = Town(cluster=node_cluster, guarded=guarded, store_namespace=store, **places, **outside)
        everybody = [place for name, place in (places | outside).items() if name != "worker"]
        assert all(town.worker.reaches(each) for each in everybody), "without a policy, each reaches each"
        assert town.stranger.reaches(town.worker)
        assert town.worker.reaches(town.dns, DNS_PORT, "UDP")
        yield town
        for name in ("dns", "scraper"):
            node_cluster.kubernetes.delete(Pod, name, namespace="kube-system")


OUTSIDE = {
    # Of a range that is kept for documentation (RFC 5737).
    "internet": "203.0.113.10",
    # https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
    "metadata": "169.254.169.254",
    # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    "host_agent": "168.63.129.16",
}


def at_address(node_cluster: NodeCluster, place: Place, address: str) -> Place:
    """The pod as a host outside of the cluster."""
    node_cluster.node.namespaces.run(["ip", "route", "add", address, "via", place.address, "dev", "cni0"])
    enter = ["nsenter", f"--net=/proc/{place.process}/ns/net"]
    node_cluster.node.namespaces.run([*enter, "ip", "addr", "add", f"{address}/32", "dev", "eth0"])
    return Place(process=place.process, address=address)


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


def declared(town: Town) -> dict[str, dict[str, Any]]:
    """The specs of a workspace's policies, by name."""
    egress = [
        Egress(name="downloads", ranges=("0.0.0.0/0",), ports=(WEB_PORT,)),
        Egress(name="store", namespaces=(town.store_namespace,), ports=(WEB_PORT,)),
    ]
    return dict(policies(same_namespace=True, egress=egress, metrics_port=METRICS_PORT))


@pytest.fixture(scope="module")
def closed(town: Town) -> Town:
    """The workspace with the one policy that denies everything, both ways."""
    apply(town, "default-deny", declared(town)["default-deny"])
    wait_for("the policy's effect", lambda: not town.stranger.reaches(town.worker))
    return town


def test_default_deny_lets_no_packet_in_or_out(closed: Town) -> None:
    names = ("peer", "stranger", "dns", "scraper", "store", *OUTSIDE)
    inwards = [name for name in names if getattr(closed, name).reaches(closed.worker)]
    outwards = [name for name in names if closed.worker.reaches(getattr(closed, name))]
    assert (inwards, outwards) == ([], [])
    assert not closed.worker.reaches(closed.dns, DNS_PORT, "UDP")


def test_other_workspaces_go_on_as_before(closed: Town) -> None:
    assert closed.stranger.reaches(closed.dns)
    assert closed.scraper.reaches(closed.stranger)


@pytest.fixture(scope="module")
def with_holes(closed: Town) -> Town:
    """The workspace with all its policies."""
    for name, spec in declared(closed).items():
        if name != "default-deny":
            apply(closed, name, spec)
    # Each policy comes into force by itself: one packet for each that nothing else lets through.
    wait_for("the hole for the workspace itself", lambda: closed.worker.reaches(closed.peer))
    wait_for("the hole for DNS", lambda: closed.worker.reaches(closed.dns, DNS_PORT))
    wait_for("the hole for metrics", lambda: closed.scraper.reaches(closed.worker, METRICS_PORT))
    wait_for("the hole for the store", lambda: closed.worker.reaches(closed.store))
    wait_for("the hole for downloads", lambda: closed.worker.reaches(closed.internet))
    return closed


def test_dns_is_reached_over_both_protocols_and_on_no_other_port(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.dns, DNS_PORT, "UDP")
    assert with_holes.worker.reaches(with_holes.dns, DNS_PORT, "TCP")
    assert not with_holes.worker.reaches(with_holes.dns, WEB_PORT)


def test_another_pod_beside_dns_is_not_reached_on_its_port(with_holes: Town) -> None:
    assert not with_holes.worker.reaches(with_holes.scraper, DNS_PORT, "TCP")


def test_pods_of_one_workspace_reach_each_other(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.peer)
    assert with_holes.peer.reaches(with_holes.worker)


def test_pods_of_another_workspace_reach_nothing_and_are_not_reached(with_holes: Town) -> None:
    assert not with_holes.stranger.reaches(with_holes.worker, WEB_PORT)
    assert not with_holes.stranger.reaches(with_holes.worker, METRICS_PORT)
    assert not with_holes.worker.reaches(with_holes.stranger)


def test_the_scraper_reaches_the_port_of_metrics_and_no_other(with_holes: Town) -> None:
    assert with_holes.scraper.reaches(with_holes.worker, METRICS_PORT)
    assert not with_holes.scraper.reaches(with_holes.worker, WEB_PORT)


def test_a_named_namespace_is_reached_on_its_port_and_reaches_nothing(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.store, WEB_PORT)
    assert not with_holes.worker.reaches(with_holes.store, METRICS_PORT)
    assert not with_holes.store.reaches(with_holes.worker, WEB_PORT)


def test_a_hole_to_the_internet_is_none_to_the_clusters_own_networks(with_holes: Town) -> None:
    assert with_holes.worker.reaches(with_holes.internet, WEB_PORT)
    assert not with_holes.worker.reaches(with_holes.internet, METRICS_PORT)
    assert not with_holes.worker.reaches(with_holes.stranger, WEB_PORT), "it is at a private address"


@pytest.mark.parametrize("name", ["metadata", "host_agent"])
def test_a_hole_to_the_internet_is_none_to_what_knows_the_nodes_identity(with_holes: Town, name: str) -> None:
    assert not with_holes.worker.reaches(getattr(with_holes, name), WEB_PORT)
