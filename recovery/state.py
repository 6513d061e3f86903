# SPDX-License-Identifier: Apache-2.0
"""What the state of a stack says of operations that did not come to their end. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ids import physical_id


class NotWanted(Exception):
    """The program does not make what is to be taken into the state; the text is its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A creation that was interrupted. `id`: of what it may have made; None: of nothing that would be in the way."""

    urn: str
    id: str | None


def resources(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return state.get("deployment", {}).get("resources") or []


def operations(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that had begun and not ended when the state was written."""
    return state.get("deployment", {}).get("pending_operations") or []


def unfinished_creations(state: Mapping[str, Any], subscription: str) -> list[Unfinished]:
    """Of `pulumi stack export`. Raises UnknownType."""
    return [
        Unfinished(
            urn=operation["resource"]["urn"],
            id=physical_id(
                operation["resource"]["type"], operation["resource"].get("inputs", {}), subscription
            ),
        )
        for operation in operations(state)
        if operation["type"] == "creating"
    ]


def as_if_created(state: Mapping[str, Any], found: Sequence[Unfinished]) -> dict[str, Any]:
    """The state as if the creations in `found` that have an id had succeeded, and the others had not begun.

    A refresh then drops what is not there, and reads what is.
    """
    ids = {one.urn: one.id for one in found}
    made = [
        {**operation["resource"], "id": ids[operation["resource"]["urn"]], "outputs": {}}
        for operation in operations(state)
        if operation["type"] == "creating" and ids.get(operation["resource"]["urn"])
    ]
    left = [
        operation
        for operation in operations(state)
        if operation["type"] != "creating" or operation["resource"]["urn"] not in ids
    ]
    deployment = {
        **state["deployment"],
        "resources": [*resources(state), *made],
        "pending_operations": left,
    }
    return {**state, "deployment": deployment}


def as_wanted(
    state: Mapping[str, Any], plan: Mapping[str, Any], ids: Sequence[str], subscription: str
) -> dict[str, Any]:
    """The state as if those creations of a plan (`pulumi preview --json`) were under way that make what `ids` name.

    Raises NotWanted, UnknownType.
    """
    creations = [step["newState"] for step in plan.get("steps", []) if step["op"] == "create"]
    by_id = {
        str(physical_id(one["type"], one.get("inputs", {}), subscription)).lower(): one for one in creations
    }
    for id in ids:
        if id.lower() not in by_id:
            raise NotWanted(id)
    begun = [{"resource": by_id[id.lower()], "type": "creating"} for id in ids]
    deployment = {**state["deployment"], "pending_operations": [*operations(state), *begun]}
    return {**state, "deployment": deployment}


def half_made(state: Mapping[str, Any]) -> dict[str, list[str]]:
    """By URN, why resources that are there are not as they should be. The next `up` tries these again."""
    return {one["urn"]: one["initErrors"] for one in resources(state) if one.get("initErrors")}


def interrupted(state: Mapping[str, Any], found: Sequence[Unfinished]) -> dict[str, list[str]]:
    """The same, of what was `found`, after a refresh: Azure had begun with it, and has not come to a good end."""
    urns = {one.urn for one in found}
    return {
        one["urn"]: [f"interrupted: {outputs['provisioningState']}"]
        for one in resources(state)
        if one["urn"] in urns
        and (outputs := one.get("outputs", {})).get("provisioningState", "Succeeded") != "Succeeded"
    }


def as_half_made(state: Mapping[str, Any], errors: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The state with `errors` in it: a refresh forgets them, though it changes nothing of what they are about."""
    marked = [
        {**one, "initErrors": list(errors[one["urn"]])} if one["urn"] in errors else one
        for one in resources(state)
    ]
    return {**state, "deployment": {**state["deployment"], "resources": marked}}
