# SPDX-License-Identifier: Apache-2.0
"""The simulated azure-native as the engine sees it (`pulumirpc.ResourceProvider`).

Owns the protocol; what Azure does is in `resource_manager.py`. The engine keeps track of secrets itself, because this
provider does not ask for them: an output that was given as a secret stays one.
"""

import json
import os
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.empty_pb2 import Empty
from google.rpc import status_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.azure import functions, shapes
from localcloud.azure.effects import Place
from localcloud.azure.errors import AnswerLost, AzureError
from localcloud.azure.input_check import Problem, problems
from localcloud.azure.known_types import knowledge_of
from localcloud.azure.naming import AUTO_NAMED, complete, name_problems
from localcloud.azure.property_diff import detailed_diff, replaced, top_level
from localcloud.azure.records import Json
from localcloud.azure.resource_manager import NotSimulated, PartlyDone, ResourceManager
from localcloud.azure.resource_types import PACKAGE, UnknownType, normalised, resource_type
from localcloud.azure.surroundings import SUBSCRIPTION, NotRunning
from localcloud.plugin.values import from_struct, to_struct

REFUSALS: Final = (AnswerLost, AzureError, NotSimulated, NotRunning, UnknownType)


class AzureNative(provider_pb2_grpc.ResourceProviderServicer):
    """One provider of one engine run, in the local cloud at `place`."""

    def __init__(self, place: Place, *, version: str) -> None:
        self._place, self._version = place, version
        self._location: str | None = None
        self._manager = ResourceManager(place, subscription=SUBSCRIPTION)

    # The provider itself

    def Handshake(
        self, request: pb.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> pb.ProviderHandshakeResponse:
        return pb.ProviderHandshakeResponse(supports_autonaming_configuration=True)

    def GetPluginInfo(self, request: Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self._version)

    def GetSchema(self, request: pb.GetSchemaRequest, context: grpc.ServicerContext) -> pb.GetSchemaResponse:
        """Only its head: programs bring the SDK, which has the rest."""
        return pb.GetSchemaResponse(schema=json.dumps({"name": PACKAGE, "version": self._version}))

    def CheckConfig(self, request: pb.CheckRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        return pb.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: pb.DiffRequest, context: grpc.ServicerContext) -> pb.DiffResponse:
        return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)

    def Configure(self, request: pb.ConfigureRequest, context: grpc.ServicerContext) -> pb.ConfigureResponse:
        given = from_struct(request.args)
        self._location = given.get("location") or os.environ.get("ARM_LOCATION")
        subscription = given.get("subscriptionId") or os.environ.get("ARM_SUBSCRIPTION_ID") or SUBSCRIPTION
        self._manager = ResourceManager(self._place, subscription=subscription)
        return pb.ConfigureResponse(supportsPreview=True, supports_autonaming_configuration=True)

    def Cancel(self, request: Empty, context: grpc.ServicerContext) -> Empty:
        return Empty()

    # Resources

    def Check(self, request: pb.CheckRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        news = from_struct(request.news)
        try:
            kind = resource_type(_token(request.urn))
        except UnknownType as error:
            return pb.CheckResponse(inputs=request.news, failures=[pb.CheckFailure(reason=str(error))])
        known = knowledge_of(kind.token)
        found = problems(news, kind.inputs)
        inputs: Json = news
        if known and not found:
            inputs, found = complete(
                kind,
                known,
                news,
                request,
                location=self._location,
                subscription=self._manager.subscription,
                store=self._place.store,
            )
            found += name_problems(known, inputs)
        return pb.CheckResponse(inputs=to_struct(inputs), failures=[_failure(one, news) for one in found])

    def Diff(self, request: pb.DiffRequest, context: grpc.ServicerContext) -> pb.DiffResponse:
        known = knowledge_of(normalised(_token(request.urn)))
        immutable = known.immutable if known else frozenset({"location"})
        found = detailed_diff(from_struct(request.old_inputs), from_struct(request.news), immutable)
        # The engine drops ignored changes of a program itself, but leaves those of a refresh to the provider.
        detail = {path: kind for path, kind in found.items() if not _within(path, request.ignoreChanges)}
        replaces = replaced(detail)
        return pb.DiffResponse(
            changes=pb.DiffResponse.DIFF_SOME if detail else pb.DiffResponse.DIFF_NONE,
            diffs=sorted({top_level(path) for path in detail}),
            replaces=replaces,
            detailedDiff=detail,
            hasDetailedDiff=True,
            # A name that the program gave stays the same, and so does the id: the old one must go first.
            deleteBeforeReplace=bool(replaces) and AUTO_NAMED not in request.old_inputs.fields,
        )

    def Create(self, request: pb.CreateRequest, context: grpc.ServicerContext) -> pb.CreateResponse:
        inputs = from_struct(request.properties)
        try:
            kind = resource_type(_token(request.urn))
            self._manager.knowledge(kind)
            if request.preview:
                return pb.CreateResponse(properties=to_struct(shapes.previewed(inputs, kind.outputs)))
            made = self._manager.create(kind, inputs)
        except PartlyDone as error:
            _abort_partly_done(context, error)
        except REFUSALS as error:
            _abort(context, error)
        return pb.CreateResponse(id=made.id, properties=to_struct(made.outputs))

    def Read(self, request: pb.ReadRequest, context: grpc.ServicerContext) -> pb.ReadResponse:
        old, inputs = from_struct(request.properties), from_struct(request.inputs)
        try:
            kind = resource_type(_token(request.urn))
            known = self._manager.knowledge(kind)
            there = self._manager.read(request.id)
        except REFUSALS as error:
            _abort(context, error)
        if there is None or there.token != kind.token:
            return pb.ReadResponse()
        if inputs or old:
            inputs = shapes.refreshed(inputs, old, there.outputs, kind.inputs)
        else:
            inputs = shapes.imported(there.id, known, there.outputs, kind.inputs)
        kept = {name: True for name in (AUTO_NAMED,) if name in request.inputs.fields}
        return pb.ReadResponse(
            id=there.id, properties=to_struct(there.outputs), inputs=to_struct({**inputs, **kept})
        )

    def Update(self, request: pb.UpdateRequest, context: grpc.ServicerContext) -> pb.UpdateResponse:
        inputs = from_struct(request.news)
        try:
            kind = resource_type(_token(request.urn))
            if request.preview:
                outputs = shapes.previewed_update(inputs, from_struct(request.olds), kind.outputs)
                return pb.UpdateResponse(properties=to_struct(outputs))
            made = self._manager.update(kind, request.id, inputs)
        except PartlyDone as error:
            _abort_partly_done(context, error)
        except REFUSALS as error:
            _abort(context, error)
        return pb.UpdateResponse(properties=to_struct(made.outputs))

    def Delete(self, request: pb.DeleteRequest, context: grpc.ServicerContext) -> Empty:
        try:
            self._manager.delete(request.id)
        except REFUSALS as error:
            _abort(context, error)
        return Empty()

    # Functions

    def Invoke(self, request: pb.InvokeRequest, context: grpc.ServicerContext) -> pb.InvokeResponse:
        function = normalised(request.tok).partition(":")[2]
        try:
            result = functions.call(
                function, from_struct(request.args), self._manager, self._place.surroundings
            )
        except REFUSALS as error:
            _abort(context, error)
        response = pb.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(result))
        return response


def _token(urn: str) -> str:
    """The type in a URN, without those of its parents."""
    return urn.split("::")[2].rsplit("$", 1)[-1]


def _failure(problem: Problem, inputs: dict[str, Any]) -> pb.CheckFailure:
    # The engine shows the value of a property that it can find, which is only one of the resource itself.
    of_resource = problem.path in inputs
    reason = problem.reason if problem.path in problem.reason else f"{problem.path} {problem.reason}"
    return pb.CheckFailure(property=problem.path if of_resource else "", reason=reason)


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    missing = isinstance(error, NotSimulated)
    context.abort(grpc.StatusCode.UNIMPLEMENTED if missing else grpc.StatusCode.UNKNOWN, str(error))
    raise AssertionError("abort raises")


def _abort_partly_done(context: grpc.ServicerContext, error: PartlyDone) -> NoReturn:
    """The engine keeps what is there, shows the reason, and tries an update in its next run."""
    made = error.resource
    detail = pb.ErrorResourceInitFailed(
        id=made.id, properties=to_struct(made.outputs), inputs=to_struct(made.inputs), reasons=[str(error)]
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error))
    status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, str(error))
    raise AssertionError("abort raises")


def _within(path: str, ignored: Iterable[str]) -> bool:
    """Whether a property path is one of `ignored`, or inside one."""
    return any(path == outer or path.startswith((f"{outer}.", f"{outer}[")) for outer in ignored)
