# SPDX-License-Identifier: Apache-2.0
"""The messages of pprof's profile.proto, declared for the protobuf library.

Field names, numbers and types: https://github.com/google/pprof/blob/main/proto/profile.proto. Declared here in a table
instead of generated code, which would be bound to one protobuf release. A private package name keeps the messages from
colliding with another copy of profile.proto in the same process; names are not part of the encoding.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "gpuheap.pprof"
_FieldType = descriptor_pb2.FieldDescriptorProto.Type

# message -> fields as (name, number, type); a type in capitals is a message; a * means repeated
_MESSAGES: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "Profile": (
        ("sample_type", 1, "*ValueType"),
        ("sample", 2, "*Sample"),
        ("mapping", 3, "*Mapping"),
        ("location", 4, "*Location"),
        ("function", 5, "*Function"),
        ("string_table", 6, "*string"),
        ("drop_frames", 7, "int64"),
        ("keep_frames", 8, "int64"),
        ("time_nanos", 9, "int64"),
        ("duration_nanos", 10, "int64"),
        ("period_type", 11, "ValueType"),
        ("period", 12, "int64"),
        ("comment", 13, "*int64"),
        ("default_sample_type", 14, "int64"),
    ),
    "ValueType": (("type", 1, "int64"), ("unit", 2, "int64")),
    "Sample": (("location_id", 1, "*uint64"), ("value", 2, "*int64"), ("label", 3, "*Label")),
    "Label": (("key", 1, "int64"), ("str", 2, "int64"), ("num", 3, "int64"), ("num_unit", 4, "int64")),
    "Mapping": (
        ("id", 1, "uint64"),
        ("memory_start", 2, "uint64"),
        ("memory_limit", 3, "uint64"),
        ("file_offset", 4, "uint64"),
        ("filename", 5, "int64"),
        ("build_id", 6, "int64"),
        ("has_functions", 7, "bool"),
        ("has_filenames", 8, "bool"),
        ("has_line_numbers", 9, "bool"),
        ("has_inline_frames", 10, "bool"),
    ),
    "Location": (
        ("id", 1, "uint64"),
        ("mapping_id", 2, "uint64"),
        ("address", 3, "uint64"),
        ("line", 4, "*Line"),
        ("is_folded", 5, "bool"),
    ),
    "Line": (("function_id", 1, "uint64"), ("line", 2, "int64")),
    "Function": (
        ("id", 1, "uint64"),
        ("name", 2, "int64"),
        ("system_name", 3, "int64"),
        ("filename", 4, "int64"),
        ("start_line", 5, "int64"),
    ),
}


def _declare() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="gpuheap/pprof.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind in fields:
            field = message.field.add(name=name, number=number)
            repeated, bare = kind.startswith("*"), kind.lstrip("*")
            field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if bare in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
            else:
                field.type = _FieldType.Value(f"TYPE_{bare.upper()}")
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))


PprofProfile: Final = _declare()
"""The protobuf class of the message `Profile`; its parts are made by `add()` on the repeated fields."""
