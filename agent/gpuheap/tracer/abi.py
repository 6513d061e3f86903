# SPDX-License-Identifier: Apache-2.0
"""The structs that the kernel side and the agent share: mirrors of bpf/gpuheap.h.

A test compares them with the compiled object through its BTF. Field comments are in the header.
"""

import ctypes
from enum import IntEnum, IntFlag
from typing import ClassVar, Final

MAX_FRAMES: Final = 64
INNER_FRAMES: Final = 32
NAME_BYTES: Final = 256
LINES_BYTES: Final = 4096
PAGE_BYTES: Final = 4096
SIGNAL_PAGES: Final = 4
ENTRIES: Final = 64
RETURNS: Final = 64
TEXT_PIECE_BITS: Final = 16
TEXT_WINDOW_BITS: Final = 33
TEXT_WINDOWS: Final = 4
TEXT_PLACES: Final = 64
TEXT_FACTOR_BITS: Final = 10
TEXT_WORDS: Final = 2048


class Settings(ctypes.Structure):
    _fields_: ClassVar = [
        ("began_ns", ctypes.c_uint64),
        ("live_share", ctypes.c_uint32),
        ("native_stacks", ctypes.c_uint32),
    ]


class Image(ctypes.Structure):
    _fields_: ClassVar = [
        ("start_ns", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
        ("parent", ctypes.c_uint32),
        ("live", ctypes.c_uint32),
        ("spilled", ctypes.c_uint32),
        ("late", ctypes.c_uint32),
    ]


class Interpreter(ctypes.Structure):
    _fields_: ClassVar = [
        ("runtime", ctypes.c_uint64),
        ("code_type", ctypes.c_uint64),
        ("interpreters_head", ctypes.c_uint32),
        ("interpreter_next", ctypes.c_uint32),
        ("threads_head", ctypes.c_uint32),
        ("code_generation", ctypes.c_uint32),
        ("thread_next", ctypes.c_uint32),
        ("thread_id", ctypes.c_uint32),
        ("thread_frame", ctypes.c_uint32),
        ("thread_cframe", ctypes.c_uint32),
        ("cframe_frame", ctypes.c_int32),
        ("frames_apart", ctypes.c_uint32),
        ("frame_code", ctypes.c_uint32),
        ("frame_previous", ctypes.c_uint32),
        ("frame_instruction", ctypes.c_uint32),
        ("instruction_unit", ctypes.c_uint32),
        ("frame_owner", ctypes.c_int32),
        ("frame_entry", ctypes.c_int32),
        ("frame_bytecode", ctypes.c_uint32),
        ("frame_versioned", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("code_first_line", ctypes.c_uint32),
        ("code_file", ctypes.c_uint32),
        ("code_name", ctypes.c_uint32),
        ("code_lines", ctypes.c_uint32),
        ("code_instructions", ctypes.c_uint32),
        ("code_tag", ctypes.c_uint32),
        ("code_bytecodes", ctypes.c_uint32),
        ("code_counter", ctypes.c_uint32),
        ("object_type", ctypes.c_uint32),
        ("type_name", ctypes.c_uint32),
        ("type_flags", ctypes.c_uint32),
        ("string_length", ctypes.c_uint32),
        ("string_state", ctypes.c_uint32),
        ("string_kind", ctypes.c_uint32),
        ("string_ascii", ctypes.c_uint32),
        ("string_compact", ctypes.c_uint32),
        ("bytes_size", ctypes.c_uint32),
        ("bytes_data", ctypes.c_uint32),
        ("lines_format", ctypes.c_uint32),
    ]


class CodeDeaths(ctypes.Structure):
    _fields_: ClassVar = [("image", ctypes.c_uint64), ("count", ctypes.c_uint64)]


class Frame(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_uint64),
        ("instruction", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


class Stack(ctypes.Structure):
    _fields_: ClassVar = [
        ("depth", ctypes.c_uint32),
        ("cut", ctypes.c_uint32),
        ("endless", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("frames", Frame * MAX_FRAMES),
    ]


class Site(ctypes.Structure):
    _fields_: ClassVar = [
        ("stack", ctypes.c_uint64),
        ("native", ctypes.c_uint64),
        ("image", ctypes.c_uint64),
        ("tid", ctypes.c_uint32),
        ("device", ctypes.c_int16),
        ("kind", ctypes.c_uint8),
        ("call", ctypes.c_uint8),
    ]


class Totals(ctypes.Structure):
    _fields_: ClassVar = [
        ("allocated_bytes", ctypes.c_uint64),
        ("allocated_objects", ctypes.c_uint64),
        ("freed_bytes", ctypes.c_uint64),
        ("freed_objects", ctypes.c_uint64),
        ("held_bytes", ctypes.c_uint64),
        ("held_objects", ctypes.c_uint64),
        ("moment", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class LiveKey(ctypes.Structure):
    _fields_: ClassVar = [
        ("address", ctypes.c_uint64),
        ("image", ctypes.c_uint64),
        ("space", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class LiveValue(ctypes.Structure):
    _fields_: ClassVar = [
        ("bytes", ctypes.c_uint64),
        ("site", Site),
        ("owner", ctypes.c_uint64),
        ("pool", ctypes.c_uint64),
        ("reopened", ctypes.c_uint32),
        ("returned", ctypes.c_uint32),
    ]


class Handle(ctypes.Structure):
    _fields_: ClassVar = [
        ("bytes", ctypes.c_uint64),
        ("site", Site),
        ("id", ctypes.c_uint64),
        ("references", ctypes.c_int32),
        ("mappings", ctypes.c_int32),
    ]


class HandleKey(ctypes.Structure):
    _fields_: ClassVar = [("value", ctypes.c_uint64), ("image", ctypes.c_uint64)]


class Mapping(ctypes.Structure):
    _fields_: ClassVar = [("handle", ctypes.c_uint64), ("id", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class PoolKey(ctypes.Structure):
    _fields_: ClassVar = [("pool", ctypes.c_uint64), ("image", ctypes.c_uint64)]


class Pool(ctypes.Structure):
    _fields_: ClassVar = [
        ("in_use", ctypes.c_int64),
        ("peak", ctypes.c_int64),
        ("threshold", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("pad", ctypes.c_uint32),
    ]


class OwnerKey(ctypes.Structure):
    _fields_: ClassVar = [
        ("object", ctypes.c_uint64),
        ("image", ctypes.c_uint64),
        ("type", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class Owner(ctypes.Structure):
    _fields_: ClassVar = [
        ("id", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("references", ctypes.c_int32),
        ("primary", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class FailureKey(ctypes.Structure):
    _fields_: ClassVar = [
        ("image", ctypes.c_uint64),
        ("code", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class ImageEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("image", Image),
        ("name", ctypes.c_char * 16),
    ]


class MemoryEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("moment", ctypes.c_uint32),
        ("asked", ctypes.c_uint64),
        ("site", Site),
    ]


class SpillEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("moment", ctypes.c_uint32),
        ("key", LiveKey),
        ("value", LiveValue),
    ]


class CodeEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("image", ctypes.c_uint64),
        ("code", ctypes.c_uint64),
        ("first_line", ctypes.c_uint32),
        ("name_length", ctypes.c_uint32),
        ("name_width", ctypes.c_uint32),
        ("file_length", ctypes.c_uint32),
        ("file_width", ctypes.c_uint32),
        ("lines_bytes", ctypes.c_uint32),
        ("lines_format", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("lines_address", ctypes.c_uint64),
        ("name", ctypes.c_uint8 * NAME_BYTES),
        ("file", ctypes.c_uint8 * NAME_BYTES),
        ("lines", ctypes.c_uint8 * LINES_BYTES),
    ]


class Registers(ctypes.Structure):
    _fields_: ClassVar = [
        (name, ctypes.c_uint64) for name in ("ip", "sp", "bp", "bx", "r12", "r13", "r14", "r15")
    ]


class TakenReturn(ctypes.Structure):
    _fields_: ClassVar = [("stack", ctypes.c_uint64), ("address", ctypes.c_uint64)]


class SnapshotEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("image", ctypes.c_uint64),
        ("native", ctypes.c_uint64),
        ("time_ns", ctypes.c_uint64),
        ("trampoline", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("registers", Registers),
        ("pages", ctypes.c_uint32),
        ("taken", ctypes.c_uint32),
        ("other", ctypes.c_uint64),
        ("other_end", ctypes.c_uint64),
        ("other_pages", ctypes.c_uint32),
        ("entered", ctypes.c_uint32),
        ("returns", TakenReturn * RETURNS),
        ("entries", ctypes.c_uint64 * ENTRIES),
        ("all_entered", ctypes.c_uint64),
    ]


class SameStackEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("image", ctypes.c_uint64),
        ("native", ctypes.c_uint64),
        ("known", ctypes.c_uint64),
    ]


class TextEvent(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("tgid", ctypes.c_uint32),
        ("image", ctypes.c_uint64),
        ("pages", ctypes.c_uint64),
    ]


class UnwindKey(ctypes.Structure):
    _fields_: ClassVar = [("pc", ctypes.c_uint64), ("text", ctypes.c_uint64)]


class UnwindRule(ctypes.Structure):
    _fields_: ClassVar = [("cfa", ctypes.c_int32), ("saved_bp", ctypes.c_int16), ("base", ctypes.c_uint16)]


class Text(ctypes.Structure):
    _fields_: ClassVar = [
        ("pages", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
        ("factor", ctypes.c_uint64),
        ("windows", ctypes.c_uint32 * TEXT_PLACES),
        ("bits", ctypes.c_uint64 * (TEXT_WINDOWS * TEXT_WORDS)),
    ]


STRUCTS: Final[dict[str, type[ctypes.Structure]]] = {
    "settings": Settings,
    "image": Image,
    "interpreter": Interpreter,
    "code_deaths": CodeDeaths,
    "frame": Frame,
    "stack": Stack,
    "site": Site,
    "totals": Totals,
    "live_key": LiveKey,
    "live_value": LiveValue,
    "handle": Handle,
    "handle_key": HandleKey,
    "mapping": Mapping,
    "pool_key": PoolKey,
    "pool": Pool,
    "owner_key": OwnerKey,
    "owner": Owner,
    "failure_key": FailureKey,
    "image_event": ImageEvent,
    "memory_event": MemoryEvent,
    "spill_event": SpillEvent,
    "code_event": CodeEvent,
    "registers": Registers,
    "taken_return": TakenReturn,
    "snapshot_event": SnapshotEvent,
    "text_event": TextEvent,
    "same_stack_event": SameStackEvent,
    "text": Text,
    "unwind_key": UnwindKey,
    "unwind_rule": UnwindRule,
}
"""Every shared struct by its name in C."""


DEFAULT_POOLS: Final = 4096
"""A smaller pool address is the ordinal of the device whose default pool it is."""


class StackReason(IntEnum):
    """Values of `Site.stack` below `REASONS` that are no stack but the reason why there is none."""

    NO_INTERPRETER = 1
    NO_THREAD_STATE = 2
    FAULT = 3
    NO_ROOM = 4
    EMPTY = 5
    NO_SITE = 6
    UNSEARCHED = 7
    IMPLAUSIBLE = 8
    REASONS = 16


class Loss(IntEnum):
    """Index of map `losses`."""

    RING_FULL = 0
    SPILL_FULL = 1
    PENDING_FULL = 2
    LIVE_FULL = 3
    SITES_FULL = 4
    STACKS_FULL = 5
    CODES_FULL = 6
    IMAGES_FULL = 7
    FAILURES_FULL = 8
    THREADS_FULL = 9
    HANDLES_FULL = 10
    CONTEXTS_FULL = 11
    POOLS_FULL = 12
    FAULT = 13
    TRUNCATED_STACK = 14
    NO_THREAD_STATE = 15
    UNKNOWN_FREE = 16
    UNKNOWN_RELEASE = 17
    UNMATCHED_RETURN = 18
    ADDRESS_REUSED = 19
    UNKNOWN_DEVICE = 20
    SNAPSHOT_RING_FULL = 21
    SNAPSHOT_RATE = 22
    THREAD_UNSEARCHED = 23
    IMPLAUSIBLE_STACK = 24


class FrameFlag(IntFlag):
    OUTERMOST = 1


class FrameBase(IntEnum):
    SP = 1
    BP = 2
    ROOT = 3


class EventType(IntEnum):
    IMAGE = 1
    IMAGE_END = 2
    CODE = 3
    OUT_OF_MEMORY = 4
    SPILL = 5
    SPILL_FREE = 6
    SPILL_KEEP = 7
    SNAPSHOT = 8
    TEXT = 9
    SAME_STACK = 10


class Device(IntEnum):
    """Values of `Site.device` that are no ordinal."""

    HOST = -1
    UNKNOWN = -2
