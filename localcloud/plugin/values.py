# SPDX-License-Identifier: Apache-2.0
"""Property values of a provider that does not ask for secrets: plain JSON, and one mark for the unknown."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Stands for a value that a preview cannot know (sdk/go/common/resource/plugin/rpc.go, UnknownStringValue)."""

Values = dict[str, Any]


def from_struct(struct: Struct) -> Values:
    """The properties in `struct`; the wire knows only floats, so whole numbers come back as integers."""
    values: Values = _whole(MessageToDict(struct))
    return {name: value for name, value in values.items() if value is not None and not name.startswith("__")}


def to_struct(values: Mapping[str, Any]) -> Struct:
    struct = Struct()
    struct.update({name: value for name, value in values.items() if value is not None})
    return struct


def holds_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(holds_unknown(each) for each in value)
    return bool(value == UNKNOWN)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
