# SPDX-License-Identifier: Apache-2.0
"""The structs that the kernel side and the agent share: mirrors of bpf/gpuheap.h.

A test compares them with the compiled object through its BTF. Field comments are in the header.
"""

import ctypes
from enum import IntEnum
from typing import ClassVar, Final

MAX_FRAMES: Final = 64
NAME_BYTES: Final = 256
LINES_BYTES: Final = 4096


class Image(ctypes.Structure):
    _fields_: ClassVar = [("start_ns", ctypes.c_uint64), ("id", ctypes.c_uint32), ("parent", ctypes.c_uint32)]


class Interpreter(ctypes.Structure):
    _fields_: ClassVar = [
        ("runtime", ctypes.c_uint64),
        ("interpreters_head", ctypes.c_uint32),
        ("threads_head", ctypes.c_uint32),
        ("thread_next", ctypes.c_uint32),
        ("thread_id", ctypes.c_uint32),
        ("thread_frame", ctypes.c_uint32),
        ("cframe_frame", ctypes.c_int32),
        ("frame_code", ctypes.c_uint32),
        ("frame_previous", ctypes.c_uint32),
        ("frame_instruction", ctypes.c_uint32),
        ("frame_owner", ctypes.c_uint32),
        ("code_first_line", ctypes.c_uint32),
        ("code_file", ctypes.c_uint32),
        ("code_name", ctypes.c_uint32),
        ("code_lines", ctypes.c_uint32),
        ("code_instructions", ctypes.c_uint32),
        ("code_version", ctypes.c_uint32),
        ("code_tag", ctypes.c_uint32),
        ("string_length", ctypes.c_uint32),
        ("string_state", ctypes.c_uint32),
        ("string_ascii", ctypes.c_uint32),
        ("string_compact", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class Frame(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_uint64),
        ("generation", ctypes.c_uint32),
        ("instruction", ctypes.c_uint32),
    ]


class Stack(ctypes.Structure):
    _fields_: ClassVar = [
        ("depth", ctypes.c_uint32),
        ("truncated", ctypes.c_uint32),
        ("frames", Frame * MAX_FRAMES),
    ]


class Site(ctypes.Structure):
    _fields_: ClassVar = [("stack", ctypes.c_uint64), ("image", ctypes.c_uint32), ("tid", ctypes.c_uint32)]


class Totals(ctypes.Structure):
    _fields_: ClassVar = [
        ("allocated_bytes", ctypes.c_uint64),
        ("allocated_objects", ctypes.c_uint64),
        ("freed_bytes", ctypes.c_uint64),
        ("freed_objects", ctypes.c_uint64),
    ]


class LiveKey(ctypes.Structure):
    _fields_: ClassVar = [("address", ctypes.c_uint64), ("image", ctypes.c_uint32), ("pad", ctypes.c_uint32)]


class LiveValue(ctypes.Structure):
    _fields_: ClassVar = [("bytes", ctypes.c_uint64), ("site", Site)]


class FailureKey(ctypes.Structure):
    _fields_: ClassVar = [("image", ctypes.c_uint32), ("code", ctypes.c_uint32)]


class ImageEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("image", Image),
        ("name", ctypes.c_char * 16),
    ]


class CodeEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("image", ctypes.c_uint32),
        ("code", ctypes.c_uint64),
        ("generation", ctypes.c_uint32),
        ("first_line", ctypes.c_uint32),
        ("name_length", ctypes.c_uint32),
        ("name_state", ctypes.c_uint32),
        ("file_length", ctypes.c_uint32),
        ("file_state", ctypes.c_uint32),
        ("lines_bytes", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("lines_address", ctypes.c_uint64),
        ("name", ctypes.c_uint8 * NAME_BYTES),
        ("file", ctypes.c_uint8 * NAME_BYTES),
        ("lines", ctypes.c_uint8 * LINES_BYTES),
    ]


STRUCTS: Final[dict[str, type[ctypes.Structure]]] = {
    "image": Image,
    "interpreter": Interpreter,
    "frame": Frame,
    "stack": Stack,
    "site": Site,
    "totals": Totals,
    "live_key": LiveKey,
    "live_value": LiveValue,
    "failure_key": FailureKey,
    "image_event": ImageEvent,
    "code_event": CodeEvent,
}
"""Every shared struct by its name in C."""


class StackReason(IntEnum):
    """Values of `Site.stack` below `REASONS` that are no stack but the reason why there is none."""

    NO_INTERPRETER = 1
    NO_THREAD_STATE = 2
    FAULT = 3
    NO_ROOM = 4
    EMPTY = 5
    REASONS = 16


class Loss(IntEnum):
    """Index of map `losses`."""

    RING_FULL = 0
    PENDING_FULL = 1
    LIVE_FULL = 2
    SITES_FULL = 3
    STACKS_FULL = 4
    CODES_FULL = 5
    IMAGES_FULL = 6
    FAILURES_FULL = 7
    FAULT = 8
    TRUNCATED_STACK = 9
    NO_THREAD_STATE = 10
    UNKNOWN_FREE = 11
    UNMATCHED_RETURN = 12


class EventType(IntEnum):
    IMAGE = 1
    IMAGE_END = 2
    CODE = 3
