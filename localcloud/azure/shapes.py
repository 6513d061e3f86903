# SPDX-License-Identifier: Apache-2.0
"""One resource in its several shapes: inputs, outputs, what a preview knows of it, and how Resource Manager writes it.

Pure. Does on the SDK's declarations what azure-native does (its provider/pkg/convert and pkg/provider/provider.go).
"""

from collections.abc import Mapping
from typing import Any, Final

from localcloud.azure.knowledge import Asked, Knowledge, arm_type, guid, token_hex
from localcloud.azure.records import Json, Resource
from localcloud.azure.resource_types import (
    Anything,
    Enumeration,
    ListOf,
    MapOf,
    ObjectOf,
    OneOf,
    Primitive,
    Property,
    ResourceType,
    Shape,
)
from localcloud.plugin.values import UNKNOWN

STABLE_OUTPUTS: Final = ("name", "location")
"""What azure-native takes for granted when it previews an update."""

_ENVELOPE: Final = frozenset(
    {
        "id",
        "name",
        "type",
        "location",
        "tags",
        "sku",
        "identity",
        "kind",
        "plan",
        "zones",
        "etag",
        "systemData",
        "extendedLocation",
        "managedBy",
        "properties",
    }
)
"""What Resource Manager keeps beside `properties`; the SDK flattens the two into one."""


def outputs(kind: ResourceType, knowledge: Knowledge, asked: Asked) -> Json:
    """All that Azure shows of a resource that was asked for."""
    given = {name: value for name, value in asked.inputs.items() if name in kind.outputs}
    general = {
        "name": asked.name,
        "azureApiVersion": kind.api_version,
        "provisioningState": "Succeeded",
        "systemData": {"createdBy": guid("deployer"), "createdByType": "Application"},
        "etag": token_hex(asked.id, str(asked.inputs)),
        "eTag": token_hex(asked.id, str(asked.inputs)),
    }
    if "type" not in kind.inputs:
        general["type"] = knowledge.arm_type
    declared = {name: value for name, value in general.items() if name in kind.outputs}
    return {**given, **declared, **knowledge.computed(asked)}


def previewed(inputs: Mapping[str, Any], declared: Mapping[str, Property]) -> Json:
    """The outputs as far as a preview knows them: an input keeps its value, all else is unknown."""
    return {name: _previewed(inputs.get(name, UNKNOWN), one.shape) for name, one in declared.items()}


def _previewed(value: Any, shape: Shape) -> Any:
    match shape:
        case ListOf(item) if isinstance(value, list):
            return [_previewed(each, item) for each in value]
        case MapOf(item) if isinstance(value, Mapping):
            return {key: _previewed(each, item) for key, each in value.items()}
        case ObjectOf() as of if isinstance(value, Mapping):
            return previewed(value, of.properties)
        case Anything() | OneOf():
            return value
        case Primitive() | Enumeration() if not isinstance(value, list | Mapping):
            return value
    return UNKNOWN


def previewed_update(
    inputs: Mapping[str, Any], before: Mapping[str, Any], declared: Mapping[str, Property]
) -> Json:
    known = {name: before[name] for name in STABLE_OUTPUTS if name in before}
    return {**previewed(inputs, declared), **known}


def refreshed(
    inputs: Json, old: Mapping[str, Any], new: Mapping[str, Any], declared: Mapping[str, Property]
) -> Json:
    """The inputs that a program would have needed for what is there now.

    Only what changed between two readings of the outputs is taken over: everything else in them that the program did
    not ask for is Azure's own.
    """
    before, after = _projected(old, declared), _projected(new, declared)
    result = {name: value for name, value in inputs.items() if name in after or name not in before}
    for name in after:
        if name not in before:
            result[name] = after[name]
        elif before[name] != after[name] and name in inputs:
            result[name] = _changed(inputs[name], before[name], after[name])
        # What was not asked for and changed nevertheless is another resource's: a subnet of a network, for example.
    return result


def _projected(values: Mapping[str, Any], declared: Mapping[str, Property]) -> Json:
    return {name: _project(value, declared[name].shape) for name, value in values.items() if name in declared}


def _project(value: Any, shape: Shape) -> Any:
    """A value of the outputs without what cannot be an input."""
    match shape:
        case ListOf(item) if isinstance(value, list):
            return [_project(each, item) for each in value]
        case MapOf(item) if isinstance(value, Mapping):
            return {key: _project(each, item) for key, each in value.items()}
        case ObjectOf() as of if isinstance(value, Mapping):
            return _projected(value, of.properties)
    return value


def _changed(given: Any, before: Any, after: Any) -> Any:
    if isinstance(given, Mapping) and isinstance(before, Mapping) and isinstance(after, Mapping):
        result = {name: value for name, value in given.items() if name in after or name not in before}
        for name in after:
            if before.get(name) != after[name]:
                result[name] = _changed(given.get(name), before.get(name), after[name])
        return result
    if isinstance(given, list) and isinstance(before, list) and isinstance(after, list):
        pairs = zip(given, before, after, strict=False)
        known = [_changed(*each) for each in pairs]
        return [*known, *after[len(known) :]]
    return after


def imported(
    id: str, knowledge: Knowledge, shown: Mapping[str, Any], declared: Mapping[str, Property]
) -> Json:
    """The inputs of a resource that no program has made: what is in its id, and what of its outputs can be an input."""
    return {**_projected(shown, declared), **(knowledge.parameters_of(id) or {})}


def arm_body(resource: Resource) -> Json:
    """The resource as Resource Manager writes it."""
    shown = {name: value for name, value in resource.outputs.items() if name != "azureApiVersion"}
    kind = arm_type(resource.id)
    body: Json = {"id": resource.id, "name": resource.name, "type": kind}
    properties = dict(shown.pop("properties", {}))
    for name, value in shown.items():
        if name == "type":  # a pool has a type of its own among its properties
            properties |= {"type": value} if value != kind else {}
        elif name in _ENVELOPE:
            body.setdefault(name, value)
        else:
            properties[name] = value
    return {**body, "properties": _nested(properties)}


def _nested(value: Any) -> Any:
    """Resources inside a resource (subnets, connections) have the same form."""
    if isinstance(value, list):
        return [_nested(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    id = value.get("id")
    if isinstance(id, str) and len(value) > 1 and "/providers/" in id:
        return arm_body(
            Resource(id=id, token="", outputs={key: each for key, each in value.items() if key != "id"})
        )
    return {key: _nested(each) for key, each in value.items()}
