# SPDX-License-Identifier: Apache-2.0
"""The stack's invariants, without an engine: what is refused, what is not, and that the stack itself keeps them."""

from typing import Any

import pytest

from policies.stack import (
    missing_tags,
    privileged_agent,
    public_pyroscope,
    self_approving_link,
    unprotected_cluster,
)
from tests.components.recorder import Recording

SERVICE = "kubernetes:core/v1:Service"
LINK = "azure-native:network:PrivateLinkService"
CLUSTER = "azure-native:containerservice:ManagedCluster"
INTERNAL = "service.beta.kubernetes.io/azure-load-balancer-internal"
VISIBILITY = "service.beta.kubernetes.io/azure-pls-visibility"
AUTO_APPROVAL = "service.beta.kubernetes.io/azure-pls-auto-approval"
SUBSCRIPTION = "11111111-1111-1111-1111-111111111111"


def service(kind: str, namespace: str = "gadget", **annotations: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "annotations": annotations}, "spec": {"type": kind}}


@pytest.mark.parametrize(
    ("inputs", "refused"),
    [
        (service("ClusterIP"), False),
        (service("LoadBalancer"), True),
        (service("LoadBalancer", **{INTERNAL: "true"}), False),
        (service("LoadBalancer", **{INTERNAL: "false"}), True),
        (service("NodePort"), True),
        (service("LoadBalancer", namespace="shop"), False),
        ({"metadata": {"namespace": "gadget"}}, False),
    ],
)
def test_pyroscope_is_never_in_the_open(inputs: dict[str, Any], refused: bool) -> None:
    assert bool(list(public_pyroscope(SERVICE, inputs))) == refused


def test_no_ingress_leads_to_pyroscope() -> None:
    inputs = {"metadata": {"namespace": "gadget"}}
    assert list(public_pyroscope("kubernetes:networking.k8s.io/v1:Ingress", inputs))


@pytest.mark.parametrize(
    ("visibility", "approval", "refused"),
    [
        ("*", "", False),
        ("*", SUBSCRIPTION, True),
        (SUBSCRIPTION, SUBSCRIPTION, False),
        (SUBSCRIPTION, "*", True),
        (f"{SUBSCRIPTION} *", SUBSCRIPTION, True),
    ],
)
def test_what_all_may_see_approves_nothing_by_itself(visibility: str, approval: str, refused: bool) -> None:
    by_annotations = service("LoadBalancer", **{VISIBILITY: visibility, AUTO_APPROVAL: approval})
    as_resource = {
        "visibility": {"subscriptions": visibility.split()},
        "autoApproval": {"subscriptions": approval.split()},
    }
    assert bool(list(self_approving_link(SERVICE, by_annotations))) == refused
    assert bool(list(self_approving_link(LINK, as_resource))) == refused


@pytest.mark.parametrize(
    ("security", "refused"),
    [
        ({"privileged": True}, True),
        ({"privileged": False, "capabilities": {"add": ["BPF"]}}, False),
        ({"capabilities": {"add": ["ALL"]}}, True),
        (None, False),
    ],
)
def test_the_agent_is_not_privileged(security: Any, refused: bool) -> None:
    pod = {"containers": [{"name": "agent", "securityContext": security}]}
    metadata = {"namespace": "gpuheap"}
    inputs = {"metadata": metadata, "spec": {"template": {"spec": pod}}}
    assert bool(list(privileged_agent("kubernetes:apps/v1:DaemonSet", inputs))) == refused
    assert (
        bool(list(privileged_agent("kubernetes:core/v1:Pod", {"metadata": metadata, "spec": pod}))) == refused
    )


@pytest.mark.parametrize(
    ("environment", "protected", "refused"),
    [("prod", False, True), ("Production", False, True), ("prod", True, False), ("dev", False, False)],
)
def test_a_production_cluster_is_protected(environment: str, protected: bool, refused: bool) -> None:
    inputs = {"tags": {"environment": environment}}
    assert bool(list(unprotected_cluster(CLUSTER, inputs, protected=protected))) == refused


def test_missing_tags_are_named() -> None:
    inputs = {"tags": {"environment": "dev", "owner": ""}}
    (problem,) = missing_tags(CLUSTER, inputs, required=["project", "environment", "owner"])
    assert problem == "these tags are missing: project, owner. Set them in gpuheap:tags"
    for kind in ("network:PrivateEndpoint", "privatedns:PrivateZone", "storage:StorageAccount"):
        assert list(missing_tags(f"azure-native:{kind}", {}, required=["project"])), "it costs money"
    assert not list(missing_tags("azure-native:network:Subnet", {}, required=["project"])), "it has none"


def test_the_stack_keeps_them(dev: Recording) -> None:
    for resource in dev.resources.values():
        found = [
            *public_pyroscope(resource.type, resource.inputs),
            *self_approving_link(resource.type, resource.inputs),
            *privileged_agent(resource.type, resource.inputs),
            *missing_tags(resource.type, resource.inputs, required=["project", "environment"]),
        ]
        assert not found, resource.name
