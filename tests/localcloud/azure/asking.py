# SPDX-License-Identifier: Apache-2.0
"""What the tests of the provider ask it: the engine's requests, as short calls."""

from dataclasses import dataclass
from typing import Any, Final

from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

from localcloud.azure.records import Json
from localcloud.plugin.values import from_struct, to_struct

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000001"
GROUP: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg"


@dataclass(frozen=True, slots=True)
class Engine:
    """Asks the provider what the engine would, in the engine's words."""

    provider: provider_pb2_grpc.ResourceProviderStub

    def check(
        self, token: str, inputs: Json, *, old: Json | None = None, name: str = "it"
    ) -> tuple[Json, dict[str, str]]:
        """The checked inputs, and the failures by property."""
        answer = self.provider.Check(
            pb.CheckRequest(
                urn=urn(token, name),
                olds=to_struct(old or {}),
                news=to_struct(inputs),
                randomSeed=b"\x01" * 32,
            )
        )
        return _values(answer.inputs), {failure.property: failure.reason for failure in answer.failures}

    def create(self, token: str, inputs: Json, *, preview: bool = False) -> tuple[str, Json]:
        """The id and the outputs of a resource, checked first."""
        checked, failures = self.check(token, inputs)
        assert not failures, failures
        request = pb.CreateRequest(urn=urn(token), properties=to_struct(checked), preview=preview)
        made = self.provider.Create(request)
        return made.id, from_struct(made.properties)

    def update(self, token: str, id: str, old: Json, new: Json, *, preview: bool = False) -> Json:
        request = pb.UpdateRequest(
            id=id, urn=urn(token), olds=to_struct(old), news=to_struct(new), preview=preview
        )
        return from_struct(self.provider.Update(request).properties)

    def diff(self, token: str, old: Json, new: Json) -> Any:
        request = pb.DiffRequest(urn=urn(token), old_inputs=to_struct(old), news=to_struct(new))
        return self.provider.Diff(request)

    def read(self, token: str, id: str, *, outputs: Json | None = None, inputs: Json | None = None) -> Any:
        request = pb.ReadRequest(
            id=id, urn=urn(token), properties=to_struct(outputs or {}), inputs=to_struct(inputs or {})
        )
        return self.provider.Read(request)

    def delete(self, token: str, id: str) -> None:
        self.provider.Delete(pb.DeleteRequest(id=id, urn=urn(token)))

    def invoke(self, function: str, arguments: Json) -> Json:
        answer = self.provider.Invoke(pb.InvokeRequest(tok=function, args=to_struct(arguments)))
        return from_struct(getattr(answer, "return"))


def urn(token: str, name: str = "it") -> str:
    return f"urn:pulumi:test::project::gpuheap:index:Part${token}::{name}"


def _values(struct: Any) -> Json:
    flags = {name: True for name in struct.fields if name.startswith("__")}
    return {**from_struct(struct), **flags}
