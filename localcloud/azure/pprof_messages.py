# SPDX-License-Identifier: Apache-2.0
"""The part of pprof's and Pyroscope's messages that an ingester looks at, independent of how the agent writes them.

https://github.com/google/pprof/blob/main/proto/profile.proto, https://github.com/grafana/pyroscope/blob/main/api/push/v1
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "localcloud"
INT64, UINT64 = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_UINT64
STRING, BYTES = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES

# Message -> field -> (number, type or message, repeated).
_MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, Any, bool]]]] = {
    "ValueType": {"type": (1, INT64, False), "unit": (2, INT64, False)},
    "Label": {"key": (1, INT64, False), "str": (2, INT64, False), "num": (3, INT64, False)},
    "Sample": {"location_id": (1, UINT64, True), "value": (2, INT64, True), "label": (3, "Label", True)},
    "Profile": {
        "sample_type": (1, "ValueType", True),
        "sample": (2, "Sample", True),
        "string_table": (6, STRING, True),
        "time_nanos": (9, INT64, False),
        "period_type": (11, "ValueType", False),
        "period": (12, INT64, False),
    },
    "LabelPair": {"name": (1, STRING, False), "value": (2, STRING, False)},
    "RawSample": {"raw_profile": (1, BYTES, False), "id": (2, STRING, False)},
    "RawProfileSeries": {"labels": (1, "LabelPair", True), "samples": (2, "RawSample", True)},
    "PushRequest": {"series": (1, "RawProfileSeries", True)},
}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="localcloud/pprof_messages.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                added.type = kind
    return file


_POOL: Final = DescriptorPool()
_POOL.Add(_file())  # type: ignore[no-untyped-call]

Profile: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.Profile"))  # type: ignore[no-untyped-call]
PushRequest: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.PushRequest"))  # type: ignore[no-untyped-call]
