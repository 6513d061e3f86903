# SPDX-License-Identifier: Apache-2.0
"""The approval of our connection, by the official clients over HTTP against simulated Resource Manager."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from components.azure.approval import ApprovalError, EndpointState, PrivateEndpointApprover, Request
from components.azure.credentials import arm_endpoint, arm_scope, credential
from components.azure.patience import DeadlinePassed, Patience
from localcloud.azure import private_link
from localcloud.azure.records import CUT_OFF, Fault, Resource
from localcloud.azure.store import Store
from tests.components.azure.conftest import ENDPOINT_ID, MESSAGE, SERVICE_ID, WORKSPACE_ID, Clock, Hurried

CONNECTION = "/privateEndpointConnections/"
REFRESH = "/refreshManagedPrivateEndpoints"

pytestmark = pytest.mark.usefixtures("workspace")


@pytest.fixture
def approver(patience: Patience, clock: Clock) -> Iterator[PrivateEndpointApprover]:
    with PrivateEndpointApprover.connect(
        Request(managed_private_endpoint_id=ENDPOINT_ID, private_link_service_id=SERVICE_ID, message=MESSAGE),
        credential=credential(),
        arm_endpoint=arm_endpoint(),
        arm_scope=arm_scope(),
        patience=patience,
        transport=Hurried(clock),
    ) as approver:
        yield approver


@pytest.fixture
def endpoint(store: Store) -> Resource:
    """Grafana's managed private endpoint, which has not asked for its connection yet."""
    inputs = {"privateLinkResourceId": SERVICE_ID, "requestMessage": MESSAGE, "location": "westeurope"}
    endpoint = Resource(
        id=ENDPOINT_ID,
        token="azure-native:dashboard:ManagedPrivateEndpoint",
        inputs=inputs,
        outputs={**inputs, "name": "pyroscope", "connectionState": {"status": "Pending"}},
    )
    store.create_resource(endpoint, actor="test")
    return endpoint


def ask(store: Store, endpoint: Resource) -> None:
    private_link.request(store, endpoint, actor="test")


def other_connection(
    store: Store, name: str, *, endpoint: str, message: str = MESSAGE, status: str = "Pending"
) -> None:
    """A connection that somebody else asks for."""
    connection: dict[str, Any] = {
        "id": f"{SERVICE_ID}{CONNECTION}{name}",
        "name": name,
        "privateEndpoint": {
            "id": f"/subscriptions/other/providers/Microsoft.Network/privateEndpoints/{endpoint}"
        },
        "privateLinkServiceConnectionState": {"status": status, "description": message},
    }
    private_link.add_connection(store, SERVICE_ID, connection, actor="test")


def statuses(store: Store) -> list[str]:
    """The states of all connections, in the order in which they were asked for."""
    service = store.resource(SERVICE_ID)
    assert service is not None
    return [
        one["privateLinkServiceConnectionState"]["status"]
        for one in service.outputs["privateEndpointConnections"]
    ]


def test_the_pending_connection_is_approved_and_grafana_knows(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    ask(store, endpoint)
    state = approver.approve()
    assert state.status == "Approved"
    assert state.private_ip.startswith("10."), "the address is there once Grafana was refreshed"
    assert statuses(store) == ["Approved"]


def test_a_connection_that_is_not_there_yet_is_waited_for(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, clock: Clock, told: list[str]
) -> None:
    clock.at[60] = lambda: ask(store, endpoint)
    assert approver.approve().status == "Approved"
    assert clock.now >= 60
    assert told == ["private endpoint connection: none is ours among no connection at all"], (
        "told once, not each time"
    )


def test_a_connection_that_never_comes_is_given_up_with_what_was_seen(
    approver: PrivateEndpointApprover, store: Store, clock: Clock
) -> None:
    other_connection(store, "theirs", endpoint="somebody", message="hello")
    with pytest.raises(DeadlinePassed, match="'hello'"):
        approver.approve()
    assert clock.now <= 1200
    assert statuses(store) == ["Pending"]


def test_two_connections_that_look_like_ours_are_both_left_alone(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    ask(store, endpoint)
    other_connection(store, "imitation", endpoint="grafana-dashboards-pyroscope")
    with pytest.raises(ApprovalError, match="2 connections look like ours") as caught:
        approver.approve()
    assert "imitation (Pending" in str(caught.value)
    assert statuses(store) == ["Pending", "Pending"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grafana-dashboards-pyroscope2", MESSAGE),
        ("grafana-dashboards2-pyroscope", "gpuheap rg/dashboards2/pyroscope"),
        ("grafana-dashboards-pyroscope", "please let us in"),
    ],
)
def test_a_foreign_connection_that_resembles_ours_is_not_touched(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, name: str, message: str
) -> None:
    other_connection(store, name, endpoint=name, message=message)
    ask(store, endpoint)
    assert approver.approve().status == "Approved"
    assert statuses(store) == ["Pending", "Approved"]


def test_a_connection_that_is_approved_already_is_fine(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    ask(store, endpoint)
    first = approver.approve()
    events = len(store.events())
    assert approver.approve() == first
    assert "approve" not in [event.verb for event in store.events()[events:]]


def test_a_rejected_connection_stays_rejected_and_the_way_out_is_told(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    ask(store, endpoint)
    service = store.resource(SERVICE_ID)
    assert service is not None
    (connection,) = service.outputs["privateEndpointConnections"]
    rejection = {"status": "Rejected", "description": MESSAGE}
    private_link.set_state(store, connection["id"], rejection, actor="test")
    with pytest.raises(ApprovalError, match="pulumi refresh"):
        approver.approve()
    assert statuses(store) == ["Rejected"]


def test_an_old_disconnected_connection_does_not_count(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    other_connection(store, "old", endpoint="grafana-dashboards-pyroscope", status="Disconnected")
    ask(store, endpoint)
    assert approver.approve().status == "Approved"


@pytest.mark.parametrize("status", [403, 409, 429, 503])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/privateLinkServices/pyroscope$"), ("PUT", CONNECTION), ("POST", REFRESH)]
)
def test_a_refusal_that_passes_is_outlasted(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, method: str, path: str, status: int
) -> None:
    ask(store, endpoint)
    store.add_fault(Fault(method=method, path=path, status=status, code="NotNow", times=5))
    assert approver.approve().status == "Approved"
    assert store.faults() == [], "every refusal was met"


def test_the_servers_wish_to_be_asked_later_is_followed(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, clock: Clock
) -> None:
    ask(store, endpoint)
    fault = Fault(method="PUT", path=CONNECTION, status=429, code="Slow", retry_after_seconds=90)
    store.add_fault(fault)
    approver.approve()
    assert clock.now >= 90


def test_rights_that_never_come_are_given_up_earlier_than_all_else(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, clock: Clock
) -> None:
    ask(store, endpoint)
    store.add_fault(Fault(method="PUT", path=CONNECTION, status=403, code="AuthorizationFailed", times=None))
    with pytest.raises(DeadlinePassed, match="403 AuthorizationFailed; waiting for the role assignment"):
        approver.approve()
    assert 560 <= clock.now <= 620


def test_a_refusal_that_does_not_pass_is_told_at_once(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, clock: Clock
) -> None:
    ask(store, endpoint)
    store.add_fault(Fault(method="PUT", path=CONNECTION, status=400, code="InvalidRequestFormat"))
    with pytest.raises(HttpResponseError, match="InvalidRequestFormat"):
        approver.approve()
    assert clock.now == 0


@pytest.mark.parametrize("status", [500, CUT_OFF])
def test_an_approval_whose_answer_was_lost_is_found_by_the_next_attempt(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource, status: int
) -> None:
    ask(store, endpoint)
    store.add_fault(Fault(method="PUT", path=CONNECTION, status=status, code="Lost", after=True))
    assert approver.approve().status == "Approved"


def test_the_state_of_an_endpoint_that_is_gone_is_none(approver: PrivateEndpointApprover) -> None:
    assert approver.state() is None


def test_the_state_is_what_grafana_says(
    approver: PrivateEndpointApprover, store: Store, endpoint: Resource
) -> None:
    assert approver.state() == EndpointState(status="Pending", private_ip="")
    ask(store, endpoint)
    approver.approve()
    service = store.resource(SERVICE_ID)
    assert service is not None
    private_link.remove_connection(
        store, service.outputs["privateEndpointConnections"][0]["id"], actor="test"
    )
    private_link.refresh(store, WORKSPACE_ID, actor="test")
    state = approver.state()
    assert state is not None and state.status == "Disconnected"


def _lose(store: Store, how: str) -> None:
    """Somebody rejects or removes the connection, and Grafana is not told."""
    service = store.resource(SERVICE_ID)
    assert service is not None
    (connection,) = service.outputs["privateEndpointConnections"]
    if how == "Rejected":
        rejection = {"status": "Rejected", "description": MESSAGE}
        private_link.set_state(store, connection["id"], rejection, actor="test")
    else:
        private_link.remove_connection(store, connection["id"], actor="test")


@pytest.fixture
def approved(approver: PrivateEndpointApprover, store: Store, endpoint: Resource) -> Resource:
    ask(store, endpoint)
    approver.approve()
    return endpoint


@pytest.mark.parametrize("how", ["Rejected", "Disconnected"])
def test_a_lost_connection_is_seen_before_grafana_learns_of_it(
    approver: PrivateEndpointApprover, store: Store, approved: Resource, how: str
) -> None:
    _lose(store, how)
    state = approver.state()
    assert state is not None and state.status == how


@pytest.mark.parametrize("how", ["Rejected", "Disconnected"])
def test_a_lost_connection_is_mended_by_an_endpoint_made_anew(
    approver: PrivateEndpointApprover, store: Store, approved: Resource, how: str
) -> None:
    _lose(store, how)
    assert approver.mend().status == "Approved"
    assert statuses(store) == ["Approved"]
    made = store.resource(ENDPOINT_ID)
    assert made is not None
    for key in ("privateLinkResourceId", "requestMessage", "location"):
        assert made.inputs[key] == approved.inputs[key], "it is made as it was"


def test_mending_what_is_well_changes_nothing(
    approver: PrivateEndpointApprover, store: Store, approved: Resource
) -> None:
    events = len(store.events())
    assert approver.mend().status == "Approved"
    assert {event.verb for event in store.events()[events:]} <= {"refresh", "update"}


def test_a_mending_that_ended_between_its_steps_is_taken_up_again(
    approver: PrivateEndpointApprover, store: Store, approved: Resource
) -> None:
    _lose(store, "Rejected")
    store.add_fault(Fault(method="PUT", path="/managedPrivateEndpoints/", status=409, code="Busy", times=2))
    store.add_fault(
        Fault(method="DELETE", path="/managedPrivateEndpoints/", status=429, code="Slow", times=2)
    )
    assert approver.mend().status == "Approved"
    assert store.faults() == []


def test_a_service_that_is_gone_is_a_lost_connection(
    approver: PrivateEndpointApprover, store: Store, approved: Resource
) -> None:
    store.delete_resource(SERVICE_ID, actor="test")
    state = approver.state()
    assert state is not None and state.status == "Disconnected"
