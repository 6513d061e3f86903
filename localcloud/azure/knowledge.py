# SPDX-License-Identifier: Apache-2.0
"""What the SDK does not declare about a type of resource: its id, rules, and what Azure computes.

Owns the form of this knowledge and what follows from it for every type. The types themselves are in
`types_*.py`, one file a group; a new type is one more entry there.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from localcloud.azure.errors import AzureError, not_found
from localcloud.azure.records import Json, Resource

TENANT: Final = "00000000-0000-0000-0000-00000000001d"
"""The one tenant of simulated Azure."""

_GUIDS: Final = uuid.UUID("3b1d7a0e-4c55-4f0b-8c0b-52d1f0f3d0c1")


class Finder(Protocol):
    """The part of the store that Azure's rules look at."""

    def resource(self, id: str) -> Resource | None: ...

    def resources(self, *, token: str | None = None, under: str | None = None) -> list[Resource]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A resource as it is about to be: `inputs` are the program's, `before` is what it was (None when it is new)."""

    id: str
    inputs: Json
    before: Resource | None
    store: Finder
    arm: Callable[[], str]
    """The address of Resource Manager and of all that has HTTPS here; raises when the cloud is not running."""

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    def kept(self, property: str) -> Any:
        """What Azure showed for a property before: some values do not change for the life of a resource."""
        return None if self.before is None else self.before.outputs.get(property)


Computed = Callable[[Asked], Json]
Rule = Callable[[Asked], None]


def _nothing(_asked: Asked) -> Json:
    return {}


def _anything(_asked: Asked) -> None:
    return None


def _as_stored(resource: Resource, _store: Finder) -> Json:
    return resource.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """One type of resource.

    `id` is the template of its ARM id, in which `{...}` are inputs and `{subscriptionId}` the provider's. `name` is the
    input that holds the name, `name_pattern` what Azure accepts as one, and `name_rule` the same in words.
    """

    id: str
    name: str
    name_pattern: str
    name_rule: str
    replaces: frozenset[str] = frozenset()
    """Inputs that cannot be changed in place, beside those in `id`: paths, with `[]` for any element of a list."""
    named_by_guid: bool = False
    computed: Computed = _nothing
    """What Azure adds to the inputs, or changes in them, when it makes the resource."""
    allowed: Rule = _anything
    """Raises AzureError when Azure would refuse the resource though each of its inputs is well formed."""
    deletable: Callable[[Resource, Finder], None] = lambda resource, store: None
    """Raises AzureError when the resource cannot be deleted as things are."""
    view: Callable[[Resource, Finder], Json] = _as_stored
    """The outputs as they are read: what other resources add to them."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The inputs in the id."""
        return tuple(name for name in re.findall(r"{(\w+)}", self.id) if name != "subscriptionId")

    @property
    def arm_type(self) -> str:
        """`Microsoft.Network/virtualNetworks/subnets`."""
        return arm_type(self.id)

    @property
    def immutable(self) -> frozenset[str]:
        return self.replaces | set(self.parameters) | {"location"}

    def id_of(self, inputs: Mapping[str, Any], subscription: str) -> str:
        """The id of a resource with these inputs, all of which must be known."""
        values = {name: str(inputs[name]).strip("/") for name in self.parameters}
        return "/" + self.id.format(subscriptionId=subscription, **values).strip("/")

    def parameters_of(self, id: str) -> Json | None:
        """The inputs in an id; None if it is not of this type."""
        # A scope is an id of its own; other parameters are one segment.
        parts = re.split(r"{(\w+)}", self.id.strip("/"))
        pattern = "".join(
            re.escape(part) if index % 2 == 0 else f"(?P<{part}>{'.+' if part in _SCOPES else '[^/]+'})"
            for index, part in enumerate(parts)
        )
        match = re.fullmatch(pattern, id.strip("/"), re.IGNORECASE)
        if match is None:
            return None
        return {
            name: _scope(name, value) for name, value in match.groupdict().items() if name != "subscriptionId"
        }


_SCOPES: Final = frozenset({"scope", "resourceUri"})


def _scope(name: str, value: str) -> str:
    return f"/{value}" if name in _SCOPES else value


def arm_type(id: str) -> str:
    """The type in an ARM id, of the last provider that is in it."""
    _, found, rest = id.rpartition("/providers/")
    if not found:
        return "Microsoft.Resources/resourceGroups"
    namespace, *segments = rest.split("/")
    return "/".join([namespace, *segments[::2]])


def parent_id(id: str) -> str | None:
    """The resource or resource group that must exist before `id`; None where that is a subscription."""
    before, _, rest = id.rpartition("/providers/")
    segments = rest.split("/")
    parent = id.rsplit("/", 2)[0] if len(segments) > 3 else before
    # A storage account's one blob service comes with it, and is no resource of its own here.
    parent = re.sub(r"/blobServices/default$", "", parent, flags=re.IGNORECASE)
    return parent if re.search(r"/resourceGroups/[^/]+", parent, re.IGNORECASE) else None


def guid(*about: str) -> str:
    """A GUID that is always the same for the same words."""
    return str(uuid.uuid5(_GUIDS, "/".join(about).lower()))


def token_hex(*about: str) -> str:
    """Eight hexadecimal digits, always the same for the same words."""
    return guid(*about)[:8]


def check_references(asked: Asked) -> None:
    """Raises AzureError for an id in the inputs under which there is nothing: Azure wants to see what is linked to."""
    for id in _linked(asked.inputs):
        if id.lower() != asked.id.lower() and asked.store.resource(id) is None:
            raise AzureError(
                400, "InvalidResourceReference", f"Resource {id} referenced by {asked.id} was not found."
            )


def check_parent(asked: Asked) -> None:
    """Raises AzureError when that in which the resource lies does not exist."""
    parent = parent_id(asked.id)
    if parent is not None and asked.store.resource(parent) is None:
        group = re.match(r"(/subscriptions/[^/]+/resourceGroups/[^/]+)", asked.id, re.IGNORECASE)
        missing = group[1] if group and asked.store.resource(group[1]) is None else parent
        raise not_found(missing)


def _linked(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _linked(each)
    elif isinstance(value, list):
        for each in value:
            yield from _linked(each)
    elif isinstance(value, str) and re.match(
        r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/", value, re.IGNORECASE
    ):
        yield value
