# SPDX-License-Identifier: Apache-2.0
"""What the state of a stack says of operations that did not come to their end. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ids import physical_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A creation that was interrupted. `id`: of what it may have made; None: of nothing that would be in the way."""

    urn: str
    id: str | None


def unfinished_creations(state: Mapping[str, Any], subscription: str) -> list[Unfinished]:
    """Of `pulumi stack export`. Raises UnknownType."""
    return [
        Unfinished(
            urn=operation["resource"]["urn"],
            id=physical_id(
                operation["resource"]["type"], operation["resource"].get("inputs", {}), subscription
            ),
        )
        for operation in _operations(state)
        if operation["type"] == "creating"
    ]


def as_if_created(state: Mapping[str, Any], found: Sequence[Unfinished]) -> dict[str, Any]:
    """The state as if the creations in `found` that have an id had succeeded, and the others had not begun.

    A refresh then drops what is not there, and reads what is.
    """
    ids = {one.urn: one.id for one in found}
    made = [
        {**operation["resource"], "id": ids[operation["resource"]["urn"]], "outputs": {}}
        for operation in _operations(state)
        if operation["type"] == "creating" and ids.get(operation["resource"]["urn"])
    ]
    left = [
        operation
        for operation in _operations(state)
        if operation["type"] != "creating" or operation["resource"]["urn"] not in ids
    ]
    deployment = {
        **state["deployment"],
        "resources": [*state["deployment"]["resources"], *made],
        "pending_operations": left,
    }
    return {**state, "deployment": deployment}


def _operations(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return state.get("deployment", {}).get("pending_operations") or []
