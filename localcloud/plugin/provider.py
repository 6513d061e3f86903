# SPDX-License-Identifier: Apache-2.0
"""A small resource provider: the protocol once (`pulumirpc.ResourceProvider`), so that a stand-in says only what its
resource types do.

Leaves out what stand-ins need not have: functions, components, imports, secrets (the engine keeps track of those that
go in, and the SDKs mark those that come out).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.plugin.serving import serve
from localcloud.plugin.values import UNKNOWN, Values, from_struct, holds_unknown, to_struct

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What a resource type takes for one property; `type` is a key of TYPES. A default is filled in by Check."""

    type: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an input is refused."""

    property: str
    reason: str


class ResourceType(ABC):
    """One type of resource: values in, values out."""

    token: ClassVar[str]
    inputs: ClassVar[Mapping[str, Input]]
    replaces: ClassVar[bool] = True
    """Whether a change of an input makes a new resource, as against a change in place."""

    def check(self, values: Values) -> list[Failure]:
        """What is wrong beyond names and types; unknown values are to be let through."""
        return []

    def outdated(self, inputs: Values, outputs: Values) -> set[str]:
        """Outputs that would change though no input did."""
        return set()

    @abstractmethod
    def make(self, name: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        """The id, and the outputs beside the inputs; those that a preview cannot know are UNKNOWN.

        Raises ValueError, with a text for the user, when the resource cannot be made.
        """

    def exists(self, outputs: Values) -> bool:
        return True


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves resource types under the name and version of the provider that it stands in for."""

    def __init__(self, *, name: str, version: str, types: list[ResourceType]) -> None:
        self._name, self._version = name, version
        self._types = {each.token: each for each in types}

    def serve(self) -> None:
        serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(self, server))

    def Handshake(
        self, request: pb.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> pb.ProviderHandshakeResponse:
        return pb.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self._version)

    def GetSchema(self, request: pb.GetSchemaRequest, context: grpc.ServicerContext) -> pb.GetSchemaResponse:
        resources: dict[str, Any] = {token: {} for token in self._types}
        schema = {"name": self._name, "version": self._version, "resources": resources}
        return pb.GetSchemaResponse(schema=json.dumps(schema))

    def CheckConfig(self, request: pb.CheckRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        return pb.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: pb.DiffRequest, context: grpc.ServicerContext) -> pb.DiffResponse:
        return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)

    def Configure(self, request: pb.ConfigureRequest, context: grpc.ServicerContext) -> pb.ConfigureResponse:
        return pb.ConfigureResponse(supportsPreview=True)

    def Check(self, request: pb.CheckRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        kind = self._type_of(request.urn, context)
        values = {name: each.default for name, each in kind.inputs.items() if each.default is not None}
        values |= from_struct(request.news)
        failures = _check(kind, values)
        if not failures:
            failures = kind.check(values)
        refused = [pb.CheckFailure(property=each.property, reason=each.reason) for each in failures]
        return pb.CheckResponse(inputs=to_struct(values), failures=refused)

    def Diff(self, request: pb.DiffRequest, context: grpc.ServicerContext) -> pb.DiffResponse:
        kind = self._type_of(request.urn, context)
        old, new = from_struct(request.old_inputs), from_struct(request.news)
        ignored = set(request.ignoreChanges)
        changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)} - ignored
        detail = {name: _change(name in old, name in new, kind.replaces) for name in sorted(changed)}
        for name in sorted(kind.outdated(new, from_struct(request.olds))):
            detail[name] = pb.PropertyDiff(kind=pb.PropertyDiff.UPDATE)
        return pb.DiffResponse(
            changes=pb.DiffResponse.DIFF_SOME if detail else pb.DiffResponse.DIFF_NONE,
            diffs=list(detail),
            replaces=sorted(changed) if kind.replaces else [],
            detailedDiff=detail,
            hasDetailedDiff=True,
        )

    def Create(self, request: pb.CreateRequest, context: grpc.ServicerContext) -> pb.CreateResponse:
        kind, inputs = self._type_of(request.urn, context), from_struct(request.properties)
        identity, outputs = _make(kind, request.urn, inputs, request.preview, context)
        return pb.CreateResponse(
            id="" if request.preview else identity, properties=to_struct(inputs | outputs)
        )

    def Update(self, request: pb.UpdateRequest, context: grpc.ServicerContext) -> pb.UpdateResponse:
        kind, inputs = self._type_of(request.urn, context), from_struct(request.news)
        _, outputs = _make(kind, request.urn, inputs, request.preview, context)
        return pb.UpdateResponse(properties=to_struct(inputs | outputs))

    def Read(self, request: pb.ReadRequest, context: grpc.ServicerContext) -> pb.ReadResponse:
        kind, outputs = self._type_of(request.urn, context), from_struct(request.properties)
        if not outputs:
            _abort(
                context, f"{kind.token} cannot be imported here: install the official {self._name} provider"
            )
        if not kind.exists(outputs):
            return pb.ReadResponse()
        return pb.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Delete(self, request: pb.DeleteRequest, context: grpc.ServicerContext) -> Empty:
        return Empty()

    def Cancel(self, request: Empty, context: grpc.ServicerContext) -> Empty:
        return Empty()

    def _type_of(self, urn: str, context: grpc.ServicerContext) -> ResourceType:
        token = urn.split("::")[2].rsplit("$", 1)[-1]
        kind = self._types.get(token)
        if kind is None:
            known = ", ".join(sorted(self._types))
            _abort(
                context,
                f"the stand-in for the {self._name} provider has no {token} (it has {known}): install the official one,"
                f" `pulumi plugin install resource {self._name} v{self._version}`",
            )
        return kind


def _check(kind: ResourceType, values: Values) -> list[Failure]:
    """Names and types of all inputs."""
    failures = []
    for name in sorted(values.keys() - kind.inputs.keys()):
        known = ", ".join(sorted(kind.inputs))
        failures.append(Failure(property=name, reason=f"there is no such property; known are {known}"))
    for name, each in kind.inputs.items():
        value = values.get(name)
        if value is None:
            if each.required:
                failures.append(Failure(property=name, reason="a value is required"))
        elif value != UNKNOWN and not _is(value, each.type):
            failures.append(Failure(property=name, reason=f"must be of type {each.type}, not {value!r}"))
    return failures


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _change(before: bool, after: bool, replaces: bool) -> pb.PropertyDiff:
    kind = "UPDATE" if before and after else "ADD" if after else "DELETE"
    name = f"{kind}_REPLACE" if replaces else kind
    return pb.PropertyDiff(kind=pb.PropertyDiff.Kind.Value(name), inputDiff=True)


def _make(
    kind: ResourceType, urn: str, inputs: Values, preview: bool, context: grpc.ServicerContext
) -> tuple[str, Values]:
    if holds_unknown(inputs) and not preview:
        _abort(context, f"{urn}: an input is unknown while the resource is being made")
    try:
        return kind.make(urn.rsplit("::", 1)[-1], inputs, preview=preview)
    except ValueError as error:
        _abort(context, str(error))


def _abort(context: grpc.ServicerContext, reason: str) -> NoReturn:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
    raise AssertionError("abort raises")
