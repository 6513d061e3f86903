# SPDX-License-Identifier: Apache-2.0
"""What a program may leave out: the name and the location of a resource; and whether a name is one that Azure takes."""

import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.azure.input_check import Problem
from localcloud.azure.knowledge import Finder, Knowledge, guid
from localcloud.azure.records import Json
from localcloud.azure.resource_types import ResourceType
from localcloud.azure.types_basic import GROUP
from localcloud.plugin.values import UNKNOWN, from_struct

AUTO_NAMED: Final = "__createBeforeDelete"
"""azure-native's mark in the inputs of a resource whose name it made up: another can stand beside it."""

SUFFIX_DIGITS: Final = 8


def complete(
    kind: ResourceType,
    known: Knowledge,
    news: Json,
    request: pb.CheckRequest,
    *,
    location: str | None,
    subscription: str,
    store: Finder,
) -> tuple[Json, list[Problem]]:
    """The inputs with a name and a location, kept from the last time where there was one."""
    inputs, olds, failures = dict(news), from_struct(request.olds), list[Problem]()
    if inputs.get(known.name) is None:
        if olds.get(known.name) is not None:
            inputs |= {
                known.name: olds[known.name],
                **({AUTO_NAMED: True} if AUTO_NAMED in request.olds.fields else {}),
            }
        elif request.autonaming.mode == pb.CheckRequest.AutonamingOptions.Mode.DISABLE:
            failures.append(Problem(path=known.name, reason="must be given: automatic naming is disabled"))
        else:
            inputs |= {known.name: _made_up(known, request), AUTO_NAMED: True}
    if "location" in kind.inputs and inputs.get("location") is None:
        found = olds.get("location") or location or _location_of_group(inputs, subscription, store)
        if found:
            inputs["location"] = found
        elif kind.outputs["location"].required:
            failures.append(Problem(path="location", reason="missing required property 'location'"))
    return inputs, failures


def name_problems(known: Knowledge, inputs: Mapping[str, Any]) -> list[Problem]:
    name = inputs.get(known.name)
    if name in (None, UNKNOWN) or re.fullmatch(known.name_pattern, str(name)):
        return []
    reason = f"must be {known.name_rule}; '{name}' has {len(str(name))} characters"
    return [Problem(path=known.name, reason=reason)]


def _made_up(known: Knowledge, request: pb.CheckRequest) -> str:
    seed = request.randomSeed.hex() or request.urn
    if known.named_by_guid:
        return str(uuid.UUID(guid(request.urn, seed)))
    if request.autonaming.proposed_name:
        return request.autonaming.proposed_name
    logical = request.urn.rpartition("::")[2]
    return f"{logical}{guid(request.urn, seed)[:SUFFIX_DIGITS]}"


def _location_of_group(inputs: Mapping[str, Any], subscription: str, store: Finder) -> str | None:
    name = inputs.get("resourceGroupName")
    if name == UNKNOWN:
        return UNKNOWN
    group = (
        store.resource(GROUP.format(subscriptionId=subscription, resourceGroupName=name)) if name else None
    )
    return group.outputs.get("location") if group else UNKNOWN if name else None
