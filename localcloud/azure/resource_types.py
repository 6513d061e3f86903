# SPDX-License-Identifier: Apache-2.0
"""What the installed SDK declares for a type of Azure resource: its inputs and outputs, however deeply nested.

Knows every type that the SDK has. How Azure behaves is not declared there: see `knowledge.py`.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from localcloud.azure import sdk_source

PACKAGE: Final = "azure-native"

Kind = Literal["string", "integer", "number", "boolean"]

_PRIMITIVES: Final[Mapping[str, Kind]] = {
    "_builtins.str": "string",
    "_builtins.int": "integer",
    "_builtins.float": "number",
    "_builtins.bool": "boolean",
    "str": "string",
}


class UnknownType(Exception):
    """The installed SDK has no such type; the text says so."""


@dataclass(frozen=True, slots=True)
class Anything:
    """No rule: the SDK says `Any`."""


@dataclass(frozen=True, slots=True)
class Primitive:
    kind: Kind


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One of these strings. Azure's provider lets others pass; Azure itself refuses them."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    item: "Shape"


@dataclass(frozen=True, slots=True)
class MapOf:
    item: "Shape"


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object of a class of the SDK. Its properties are read when needed: classes can refer to themselves."""

    module: str
    name: str

    @property
    def properties(self) -> "Mapping[str, Property]":
        return _properties_of(self.module, self.name)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value of any of these shapes."""

    shapes: "tuple[Shape, ...]"


Shape = Anything | Primitive | Enumeration | ListOf | MapOf | ObjectOf | OneOf


@dataclass(frozen=True, slots=True)
class Property:
    shape: Shape
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """A resource type. `token` is without an API version; property names are those on the wire (camelCase)."""

    token: str
    api_version: str
    inputs: Mapping[str, Property]
    outputs: Mapping[str, Property]

    @property
    def path(self) -> str:
        """The token without its package: `containerservice:ManagedCluster`."""
        return self.token.partition(":")[2]


def normalised(token: str) -> str:
    """The token without the API version that older programs put into it: `network/v20240501:Subnet`."""
    return re.sub(r"/v\d{8}\w*(?=:)", "", token)


def resource_type(token: str) -> ResourceType:
    """What the SDK declares for a type token. Raises UnknownType."""
    return _resource_type(normalised(token))


@cache
def _resource_type(token: str) -> ResourceType:
    package, _, path = token.partition(":")
    module_name, _, name = path.partition(":")
    module = sdk_source.module(module_name)
    if package != PACKAGE or not name:
        raise UnknownType(f"{token!r} is not a type of {PACKAGE}")
    if not re.fullmatch(r"\w+", module_name) or not module.exists:
        raise UnknownType(f"the installed {PACKAGE} has no module {module_name!r}, which {token!r} names")
    file = module.resource_file(name)
    if file is None:
        raise UnknownType(f"the installed {PACKAGE} has no resource {name!r} in module {module_name!r}")
    return ResourceType(
        token=token,
        api_version=file.api_version,
        inputs=_properties(module_name, file.inputs_of(name)),
        outputs=_properties(module_name, file.properties(name)),
    )


@cache
def _properties_of(module_name: str, name: str) -> Mapping[str, Property]:
    module = sdk_source.module(module_name)
    file = module.inputs if name in module.inputs else module.outputs
    return _properties(module_name, file.properties(name))


def _properties(module: str, declared: Mapping[str, sdk_source.Declared]) -> dict[str, Property]:
    return {
        name: Property(shape=_shape(module, one.annotation), required=one.required)
        for name, one in declared.items()
    }


def _shape(module: str, annotation: ast.expr) -> Shape:
    """The shape that an annotation such as `pulumi.Input[Optional[Sequence['XArgs']]]` stands for."""
    if isinstance(annotation, ast.Constant):
        return _named(module, str(annotation.value).rpartition(".")[2])
    if not isinstance(annotation, ast.Subscript):
        kind = _PRIMITIVES.get(ast.unparse(annotation))
        return Primitive(kind) if kind else Anything()
    outer, inner = ast.unparse(annotation.value), annotation.slice
    arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match outer:
        case "pulumi.Input" | "pulumi.Output" | "Optional":
            return _shape(module, arguments[0])
        case "Sequence":
            return ListOf(_shape(module, arguments[0]))
        case "Mapping":
            return MapOf(_shape(module, arguments[1]))
        case "Union":
            return _union([_shape(module, argument) for argument in arguments if not _typed_dict(argument)])
    return Anything()


def _named(module_name: str, name: str) -> Shape:
    module = sdk_source.module(module_name)
    if name.startswith("Known"):
        # Azure Monitor's names for lists of examples: the streams among them, for one, are without Prometheus.
        return Primitive("string")
    if name in module.enums:
        if name.startswith("Known"):  # Azure's word for a list of examples, KnownDataFlowStreams for instance
            return Primitive("string")
        return Enumeration(name, module.enums.enum_values(name))
    if name in module.inputs or name in module.outputs:
        return ObjectOf(module_name, name)
    return Anything()


def _typed_dict(annotation: ast.expr) -> bool:
    """Beside each input class stands its spelling as a TypedDict."""
    return isinstance(annotation, ast.Constant) and str(annotation.value).endswith("ArgsDict")


def _union(shapes: list[Shape]) -> Shape:
    """`Union[str, Enum]` is how the SDK writes an enumeration that may grow."""
    shapes = list(dict.fromkeys(shapes))
    enumerations = [shape for shape in shapes if isinstance(shape, Enumeration)]
    if len(enumerations) == 1 and all(shape in (Primitive("string"), enumerations[0]) for shape in shapes):
        return enumerations[0]
    return shapes[0] if len(shapes) == 1 else OneOf(tuple(shapes))
