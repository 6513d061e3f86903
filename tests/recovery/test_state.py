# SPDX-License-Identifier: Apache-2.0
"""An interrupted update's state, as the engine writes it, made ready for the next one."""

from typing import Any

import pytest

from recovery.state import (
    NotWanted,
    Unfinished,
    as_half_made,
    as_if_created,
    as_wanted,
    half_made,
    interrupted,
    unfinished_creations,
)

GROUP = {
    "urn": "urn:group",
    "type": "azure-native:resources:ResourceGroup",
    "id": "/subscriptions/s/resourceGroups/rg",
}
NETWORK = {
    "urn": "urn:network",
    "type": "azure-native:network:VirtualNetwork",
    "inputs": {"resourceGroupName": "rg", "virtualNetworkName": "net"},
    "parent": "urn:stack",
}
SERVICE = {"urn": "urn:service", "type": "kubernetes:core/v1:Service", "inputs": {}}
NETWORK_ID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/net"


def state(*operations: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    pending = [{"type": kind, "resource": resource} for kind, resource in operations]
    return {"version": 3, "deployment": {"resources": [GROUP], "pending_operations": pending}}


INTERRUPTED = state(("creating", NETWORK), ("creating", SERVICE), ("deleting", GROUP))


def test_only_creations_are_in_doubt() -> None:
    assert unfinished_creations(INTERRUPTED, "s") == [
        Unfinished(urn="urn:network", id=NETWORK_ID),
        Unfinished(urn="urn:service", id=None),
    ]


@pytest.mark.parametrize("finished", [state(), {"version": 3, "deployment": {"resources": []}}])
def test_a_state_without_operations_has_none(finished: dict[str, Any]) -> None:
    assert unfinished_creations(finished, "s") == []


def test_what_may_be_there_is_in_the_state_for_a_refresh_to_look_at() -> None:
    deployment = as_if_created(INTERRUPTED, unfinished_creations(INTERRUPTED, "s"))["deployment"]
    assert deployment["resources"] == [GROUP, {**NETWORK, "id": NETWORK_ID, "outputs": {}}]


def test_other_operations_are_left_to_the_engine() -> None:
    deployment = as_if_created(INTERRUPTED, unfinished_creations(INTERRUPTED, "s"))["deployment"]
    assert deployment["pending_operations"] == [{"type": "deleting", "resource": GROUP}]


PLAN = {"steps": [{"op": "same", "newState": GROUP}, {"op": "create", "newState": NETWORK}]}


def test_what_the_program_would_make_and_is_there_is_as_if_it_were_being_made() -> None:
    wanted = as_wanted(state(), PLAN, [NETWORK_ID.upper()], "s")
    assert unfinished_creations(wanted, "s") == [Unfinished(urn="urn:network", id=NETWORK_ID)]


@pytest.mark.parametrize("id", [str(GROUP["id"]), f"{NETWORK_ID}-of-somebody"])
def test_what_the_program_would_not_make_is_not_taken(id: str) -> None:
    with pytest.raises(NotWanted, match=id):
        as_wanted(state(), PLAN, [id], "s")


EXTENSION = {"urn": "urn:extension", "id": "/extension", "initErrors": ["Helm installation failed"]}


def test_what_azure_made_badly_is_still_tried_again_after_a_refresh_which_forgets_it() -> None:
    before = {"version": 3, "deployment": {"resources": [GROUP, EXTENSION]}}
    refreshed = {"urn": "urn:extension", "id": "/extension", "outputs": {"provisioningState": "Failed"}}
    after = {"version": 3, "deployment": {"resources": [GROUP, refreshed]}}
    resources = as_half_made(after, half_made(before))["deployment"]["resources"]
    assert resources == [GROUP, {**refreshed, "initErrors": ["Helm installation failed"]}]


def test_of_what_was_interrupted_azure_says_whether_it_came_to_a_good_end() -> None:
    network = {**NETWORK, "id": NETWORK_ID, "outputs": {"provisioningState": "Updating"}}
    found = [Unfinished(urn="urn:network", id=NETWORK_ID)]
    assert interrupted({"deployment": {"resources": [GROUP, network]}}, found) == {
        "urn:network": ["interrupted: Updating"]
    }
    network["outputs"] = {"provisioningState": "Succeeded"}
    assert interrupted({"deployment": {"resources": [GROUP, network]}}, found) == {}
    assert interrupted({"deployment": {"resources": [GROUP]}}, found) == {}
