# SPDX-License-Identifier: Apache-2.0
"""Makes, changes, reads and removes resources as Azure Resource Manager would, with what that does elsewhere.

Owns the order of things: faults, rules, store, effects. The rules of each type are in `types_*.py`.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from localcloud.azure import shapes
from localcloud.azure.effects import ACTOR, EffectFailed, Place, effects_of
from localcloud.azure.errors import AnswerLost, AzureError
from localcloud.azure.knowledge import Asked, Knowledge, check_parent, check_references
from localcloud.azure.known_types import knowledge_of
from localcloud.azure.records import CUT_OFF, UNANSWERED, Fault, Json, Resource
from localcloud.azure.resource_types import ResourceType
from localcloud.azure.store import AlreadyThere

T = TypeVar("T")

RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Answers after which azure-native's client asks again by itself (azcore's policy.RetryOptions)."""

RETRIED_CODE: Final = "AnotherOperationInProgress"
"""The one 409 that azure-native repeats."""

ATTEMPTS: Final = 4

STATE: Final = "provisioningState"
FAILED: Final = "Failed"
"""What Azure has not brought to a good end, it begins again when it is asked again."""


class NotSimulated(Exception):
    """The local cloud has no such type; the text says which it has."""


class PartlyDone(Exception):
    """A resource was made or changed, but the operation ended badly; the text is the reason."""

    def __init__(self, resource: Resource, reason: str) -> None:
        super().__init__(reason)
        self.resource = resource


class ResourceManager:
    """Resource Manager over one store, as azure-native's client sees it."""

    def __init__(self, place: Place, *, subscription: str) -> None:
        self._place, self._store, self.subscription = place, place.store, subscription

    def knowledge(self, kind: ResourceType) -> Knowledge:
        """Raises NotSimulated."""
        known = knowledge_of(kind.token)
        if known is None:
            raise NotSimulated(
                f"{kind.token} is not simulated by the local cloud: its inputs can be checked, but it cannot be made."
                " Add it to localcloud/azure/types_*.py."
            )
        return known

    def create(self, kind: ResourceType, inputs: Json) -> Resource:
        """Raises AzureError when nothing was made, PartlyDone when something was, AnswerLost when nobody knows."""
        id = self.knowledge(kind).id_of(inputs, self.subscription)
        return self._put(kind, id, inputs, before=None)

    def update(self, kind: ResourceType, id: str, inputs: Json) -> Resource:
        """Raises AzureError when nothing was changed, PartlyDone when something was, AnswerLost when nobody knows."""
        return self._put(kind, id, inputs, before=self._store.resource(id))

    def read(self, id: str) -> Resource | None:
        """The resource as it shows itself; None if there is none. Raises AzureError, AnswerLost."""
        return self._attempt("GET", id, lambda _: self._shown(id))

    def delete(self, id: str) -> None:
        """Remove a resource with all that is in it; that it is gone already is fine. Raises AzureError, AnswerLost."""

        def remove(fault: Fault | None) -> None:
            resource = self._store.resource(id)
            if resource is None:
                return
            known = knowledge_of(resource.token)
            if known:
                known.deletable(resource, self._store)
            inside = self._store.resources(under=id)
            for one in [*sorted(inside, key=lambda each: each.id.count("/"), reverse=True), resource]:
                try:
                    effects_of(one.token).removing(one, self._place)
                except EffectFailed as error:
                    raise AzureError(500, "OperationFailed", str(error)) from error
            self._store.delete_resource(id, actor=ACTOR)
            if fault:
                raise _refusal(fault)

        self._attempt("DELETE", id, remove)

    def _put(self, kind: ResourceType, id: str, inputs: Json, *, before: Resource | None) -> Resource:
        def put(fault: Fault | None) -> Resource:
            nonlocal before
            resource = self._write(kind, id, inputs, before)
            new = before is None or before.outputs.get(STATE) == FAILED
            before = resource  # if the answer gets lost, the client asks once more for what is there then
            reason = str(_refusal(fault)) if fault else self._effects(resource, new=new)
            if reason is None:
                return self._shown(id) or resource
            failed = self._store.change_resource(id, _failed, actor=ACTOR)
            raise PartlyDone(failed, reason)

        return self._attempt("PUT", id, put)

    def _write(self, kind: ResourceType, id: str, inputs: Json, before: Resource | None) -> Resource:
        asked = Asked(
            id=id, inputs=inputs, before=before, store=self._store, arm=self._place.surroundings.arm
        )
        known = self.knowledge(kind)
        check_parent(asked)
        check_references(asked)
        known.allowed(asked)
        resource = Resource(
            id=id, token=kind.token, inputs=inputs, outputs=shapes.outputs(kind, known, asked)
        )
        if before is not None:
            self._store.put_resource(resource, actor=ACTOR)
            return resource
        try:
            self._store.create_resource(resource, actor=ACTOR)
        except AlreadyThere:
            raise AzureError(
                409, "AlreadyExists", f"cannot create already existing resource '{id}'"
            ) from None
        return resource

    def _effects(self, resource: Resource, *, new: bool) -> str | None:
        """Let them happen; what went wrong, or None."""
        effects = effects_of(resource.token)
        try:
            if new:
                effects.created(resource, self._place)
            effects.kept(resource, self._place)
        except (EffectFailed, AzureError) as error:
            return str(error)
        return None

    def _shown(self, id: str) -> Resource | None:
        resource = self._store.resource(id)
        if resource is None:
            return None
        known = knowledge_of(resource.token)
        return replace(resource, outputs=known.view(resource, self._store)) if known else resource

    def _attempt(self, method: str, path: str, action: Callable[[Fault | None], T]) -> T:
        """Do it, unless fault rules say otherwise; repeated as often as azure-native's client repeats a request.

        The action is given the fault with which it has to end.
        """
        for number in range(1, ATTEMPTS + 1):
            fault = self._store.take_fault(method, path)
            if fault is None:
                return action(None)
            if fault.status == UNANSWERED:
                if fault.after:
                    action(None)
                _wait_for_ever()
            if fault.status == CUT_OFF:
                if fault.after:
                    action(None)
                if number == ATTEMPTS:
                    raise AnswerLost(method, path)
                continue
            if fault.after:
                return action(fault)
            again = fault.status in RETRIED or fault.code == RETRIED_CODE
            if not again or number == ATTEMPTS:
                raise _refusal(fault)
        raise AssertionError("the last attempt returns or raises")


def _wait_for_ever() -> None:
    """Until the process that is served has ended: then nobody waits for this one's threads."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)


def _failed(resource: Resource) -> Resource:
    if STATE not in resource.outputs:
        return resource
    return replace(resource, outputs={**resource.outputs, STATE: FAILED})


def _refusal(fault: Fault) -> AzureError:
    return AzureError(fault.status, fault.code, fault.message, retry_after_seconds=fault.retry_after_seconds)
