# SPDX-License-Identifier: Apache-2.0
"""Compares a program's inputs with what the SDK declares, and says where they differ. Pure."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.azure.resource_types import (
    Enumeration,
    ListOf,
    MapOf,
    ObjectOf,
    OneOf,
    Primitive,
    Property,
    Shape,
)
from localcloud.plugin.values import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with the property at `path`; an empty path is the resource itself."""

    path: str
    reason: str


def problems(values: Mapping[str, Any], declared: Mapping[str, Property]) -> list[Problem]:
    """All problems of a resource's inputs. Unknown values fit everywhere."""
    return list(_object(values, declared, ""))


def _object(values: Mapping[str, Any], declared: Mapping[str, Property], path: str) -> Iterator[Problem]:
    for name, value in values.items():
        place = f"{path}.{name}" if path else name
        if name not in declared:
            yield Problem(path=place, reason=_no_such(name, declared))
        elif value is not None:
            yield from _value(value, declared[name].shape, place)
    for name, one in declared.items():
        if one.required and values.get(name) is None:
            place = f"{path}.{name}" if path else name
            yield Problem(path=place, reason=f"missing required property '{place}'")


def _value(value: Any, shape: Shape, path: str) -> Iterator[Problem]:
    if value == UNKNOWN:
        return
    match shape:
        case Primitive(kind) if not _fits(value, kind):
            yield Problem(path=path, reason=f"must be of type {kind}, not {_shown(value)}")
        case Enumeration(_, values) if value not in values:
            yield Problem(path=path, reason=f"must be one of {', '.join(values)}; it is {_shown(value)}")
        case ListOf() | MapOf() | ObjectOf():
            yield from _collection(value, shape, path)
        case OneOf(shapes):
            attempts = [list(_value(value, one, path)) for one in shapes]
            if all(attempts):
                yield from min(attempts, key=len)


def _collection(value: Any, shape: ListOf | MapOf | ObjectOf, path: str) -> Iterator[Problem]:
    match shape:
        case ListOf(item) if isinstance(value, list):
            for index, element in enumerate(value):
                yield from _value(element, item, f"{path}[{index}]")
        case MapOf(item) if isinstance(value, Mapping):
            for key, element in value.items():
                yield from _value(element, item, f'{path}["{key}"]')
        case ObjectOf() as of if isinstance(value, Mapping):
            yield from _object(value, of.properties, path)
        case _:
            wanted = {ListOf: "a list", MapOf: "a map", ObjectOf: "an object"}[type(shape)]
            yield Problem(path=path, reason=f"must be {wanted}, not {_shown(value)}")


def _fits(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":  # numbers travel as floats
            return (
                not isinstance(value, bool) and isinstance(value, int | float) and float(value).is_integer()
            )
        case _:
            return not isinstance(value, bool) and isinstance(value, int | float)


def _no_such(name: str, declared: Mapping[str, Property]) -> str:
    close = difflib.get_close_matches(name, declared, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"there is no property '{name}'; {hint}allowed: {', '.join(sorted(declared))}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)
