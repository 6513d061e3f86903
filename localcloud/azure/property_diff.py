# SPDX-License-Identifier: Apache-2.0
"""How two versions of a resource's inputs differ, property by property, in the engine's terms.

Follows azure-native: inputs are compared with inputs, a change inside a property that forces replacement forces it too,
and elements that are added to a list or taken from it never do.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.plugin.values import UNKNOWN


def detailed_diff(
    old: Mapping[str, Any], new: Mapping[str, Any], immutable: Collection[str]
) -> dict[str, pb.PropertyDiff]:
    """Property paths and what happens at each. `immutable` has paths, with `[]` for any element of a list."""
    return dict(_object(old, new, "", "", immutable))


def replaced(diff: Mapping[str, pb.PropertyDiff]) -> list[str]:
    """The top-level properties because of which the resource is replaced."""
    replacing = (pb.PropertyDiff.ADD_REPLACE, pb.PropertyDiff.DELETE_REPLACE, pb.PropertyDiff.UPDATE_REPLACE)
    return sorted({top_level(path) for path, one in diff.items() if one.kind in replacing})


def top_level(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _object(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, pattern: str, immutable: Collection[str]
) -> Iterator[tuple[str, pb.PropertyDiff]]:
    for name in sorted(old.keys() | new.keys()):
        place, rule = _below(path, name), f"{pattern}.{name}" if pattern else name
        if name not in new:
            yield place, _change("DELETE", rule in immutable)
        elif name not in old:
            yield place, _change("ADD", rule in immutable)
        elif not _same(name if not path else "", old[name], new[name]):
            yield from _value(old[name], new[name], place, rule, immutable)


def _value(
    old: Any, new: Any, path: str, pattern: str, immutable: Collection[str]
) -> Iterator[tuple[str, pb.PropertyDiff]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for place, change in _object(old, new, path, pattern, immutable):
            inherited = pattern in immutable and change.kind == pb.PropertyDiff.UPDATE
            yield place, _change("UPDATE", True) if inherited else change
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            if before != after:
                yield from _value(before, after, f"{path}[{index}]", f"{pattern}[]", immutable)
        for index in range(len(new), len(old)):
            yield f"{path}[{index}]", _change("DELETE", False)
        for index in range(len(old), len(new)):
            yield f"{path}[{index}]", _change("ADD", False)
    else:
        yield path, _change("UPDATE", pattern in immutable)


def _same(name: str, old: Any, new: Any) -> bool:
    """Equal, or the same place in another spelling: Azure takes `West Europe` for `westeurope`."""
    if name == "location" and isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
        return old.replace(" ", "").lower() == new.replace(" ", "").lower()
    return bool(old == new)


def _below(path: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", name):
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name


def _change(kind: str, replace: bool) -> pb.PropertyDiff:
    return pb.PropertyDiff(
        kind=pb.PropertyDiff.Kind.Value(f"{kind}_REPLACE" if replace else kind), inputDiff=True
    )
