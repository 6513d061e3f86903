# SPDX-License-Identifier: Apache-2.0
"""Who reaches Pyroscope, by the stack's own policy, with real packets between pods of the real node."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from lightkube import codecs

from components.profiler_agent import LABELS as AGENT
from components.pyroscope import PORT
from components.pyroscope_access import PODS
from tests.components.conftest import EXISTING, run_program
from tests.localcloud.node.conftest import NodeCluster
from tests.localcloud.node.pod_network import reaches, serving
from tests.localcloud.node.test_network_policies import Place, at_address, place
from tests.waiting import wait_for

MEMBERLIST = 7946
"""By which Pyroscope's parts find each other, in Grafana's chart."""

PRIVATE_LINK = "192.0.2.64/28"
INSIDE, BESIDE = "192.0.2.70", "192.0.2.90"
"""Addresses of that subnet, and of the one beside it, in a range that is kept for documentation (RFC 5737)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Pyroscope, another part of it, both profilers, a pod beside them, one elsewhere; and a host of the network."""

    pyroscope: Place
    part: Place
    gadget: Place
    agent: Place
    beside: Place
    elsewhere: Place
    host: Place


@pytest.fixture(scope="module")
def neighbours(node_cluster: NodeCluster) -> Iterator[Neighbours]:
    namespaces = {"gadget": "gadget", "gpuheap": "gpuheap", "elsewhere": node_cluster.namespace()}
    for name in ("gadget", "gpuheap"):
        node_cluster.kubernetes.create(codecs.from_dict(_manifest("v1", "Namespace", {"name": name})))
        node_cluster.wait_for_default_account(name)
    made = {
        "pyroscope": ("gadget", PODS),
        "part": ("gadget", PODS),
        "gadget": ("gadget", {"k8s-app": "gadget"}),
        "agent": ("gpuheap", AGENT),
        "beside": ("gadget", {"app": "other"}),
        # The agent's labels are no ticket from a namespace in which others may make pods.
        "elsewhere": ("elsewhere", AGENT),
    }
    pods = {
        name: node_cluster.pod(namespaces[where], name, "sleep", "10000", labels=dict(labels))
        for name, (where, labels) in made.items()
    }
    places = {name: place(node_cluster, pod) for name, pod in pods.items()}
    for address in (INSIDE, BESIDE):
        host = at_address(node_cluster, places["elsewhere"], address)
    with ExitStack() as stack:
        for port in (PORT, MEMBERLIST):
            stack.enter_context(serving(places["pyroscope"].process, port, "TCP"))
        everybody = Neighbours(**places, host=host)
        senders = [one for name, one in places.items() if name != "pyroscope"]
        assert all(one.reaches(everybody.pyroscope, PORT) for one in senders), "without a policy all do"
        assert from_host(everybody, BESIDE)
        apply(node_cluster)
        wait_for("the policy's effect", lambda: not everybody.beside.reaches(everybody.pyroscope, PORT))
        yield everybody


def _manifest(version: str, kind: str, metadata: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def apply(node_cluster: NodeCluster) -> None:
    """The policy that the whole program declares, where the Private Link subnet's range is named."""
    link = {**EXISTING["gpuheap:privateLink"], "sourceRange": PRIVATE_LINK}
    declared = run_program({**EXISTING, "gpuheap:privateLink": link})["pyroscope-access"].inputs
    policy = _manifest(
        "networking.k8s.io/v1", "NetworkPolicy", declared["metadata"], spec=_whole(declared["spec"])
    )
    node_cluster.kubernetes.create(codecs.from_dict(policy))


def _whole(value: Any) -> Any:
    """The SDK hands over every number as a float; the engine writes whole ones as such."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) else value


def from_host(everybody: Neighbours, address: str) -> bool:
    """Whether Pyroscope is reached from outside of the pods' network, as by the Private Link Service."""
    return reaches(everybody.host.process, everybody.pyroscope.address, PORT, source=address)


@pytest.mark.parametrize("profiler", ["agent", "gadget"])
def test_a_profiler_reaches_pyroscope_on_its_port_and_no_other(neighbours: Neighbours, profiler: str) -> None:
    pods: Place = getattr(neighbours, profiler)
    assert pods.reaches(neighbours.pyroscope, PORT)
    assert not pods.reaches(neighbours.pyroscope, MEMBERLIST)


def test_pyroscopes_parts_reach_each_other_on_every_port(neighbours: Neighbours) -> None:
    assert neighbours.part.reaches(neighbours.pyroscope, PORT)
    assert neighbours.part.reaches(neighbours.pyroscope, MEMBERLIST)


def test_grafana_reaches_pyroscope_by_the_private_link_subnet(neighbours: Neighbours) -> None:
    assert from_host(neighbours, INSIDE)
    assert not from_host(neighbours, BESIDE)


@pytest.mark.parametrize("other", ["beside", "elsewhere"])
def test_no_other_pod_reaches_pyroscope_whatever_its_labels(neighbours: Neighbours, other: str) -> None:
    assert not getattr(neighbours, other).reaches(neighbours.pyroscope, PORT)
