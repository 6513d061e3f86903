# SPDX-License-Identifier: Apache-2.0
"""What an interpreter says about itself: `_PyRuntime` of CPython 3.13 and newer begins with a table of offsets.

The table is `_Py_DebugOffsets` in Include/internal of each version: pycore_runtime.h (3.13), pycore_debug_offsets.h
(3.14, 3.15). Its fields are 64-bit words, and differ by minor version. They are read from the interpreter's file, so
nothing about them is taken for granted.
"""

import struct
from typing import Final

from .cpython_layouts import CODE_VERSION, Layout

COOKIE: Final = b"xdebugpy"
DEBUG_OFFSETS_BYTES: Final = 1024

_RUNTIME: Final = ("size", "finalizing", "interpreters_head")
_GIL: Final = ("ceval_gil", "gil_runtime_state", "gil_enabled", "gil_locked", "gil_holder")
_MODULES: Final = ("gc", "imports_modules", "sysdict", "builtins")
_INTERPRETER_313: Final = ("size", "id", "next", "threads_head", *_MODULES, *_GIL)
_INTERPRETER: Final = (
    *("size", "id", "next", "threads_head", "threads_main", *_MODULES, *_GIL),
    *("code_object_generation", "tlbc_generation"),
)
_THREAD: Final = (
    *("size", "prev", "next", "interp", "current_frame", "thread_id", "native_thread_id"),
    *("datastack_chunk", "status"),
)
_THREAD_315: Final = (
    *("size", "prev", "next", "interp", "current_frame", "base_frame"),
    *("last_profiled_frame", "last_profiled_frame_seq", "thread_id", "native_thread_id"),
    *("datastack_chunk", "status", "holds_gil", "gil_requested", "current_exception", "exc_state"),
)
_FRAME_313: Final = ("size", "previous", "executable", "instr_ptr", "localsplus", "owner")
_FRAME: Final = (*_FRAME_313, "stackpointer", "tlbc_index")
_CODE_313: Final = (
    *("size", "filename", "name", "qualname", "linetable", "firstlineno", "argcount", "localsplusnames"),
    *("localspluskinds", "co_code_adaptive"),
)
_CODE: Final = (*_CODE_313, "co_tlbc")
_TYPE: Final = ("size", "tp_name", "tp_repr", "tp_flags")
_SEQUENCE: Final = ("size", "ob_item", "ob_size")
_BYTES: Final = ("size", "ob_size", "ob_sval")
_STRING: Final = ("size", "state", "length", "asciiobject_size")

_BEFORE_BYTES_313: Final = {
    "tuple": _SEQUENCE,
    "list": _SEQUENCE,
    "dict": ("size", "ma_keys", "ma_values"),
    "float": ("size", "ob_fval"),
    "long": ("size", "lv_tag", "ob_digit"),
}
_BEFORE_BYTES: Final = {"set": ("size", "used", "table", "mask"), **_BEFORE_BYTES_313}  # all are skipped

_TABLES: Final[dict[tuple[int, int], dict[str, tuple[str, ...]]]] = {
    (3, 13): {
        "runtime": _RUNTIME,
        "interpreter": _INTERPRETER_313,
        "thread": _THREAD,
        "frame": _FRAME_313,
        "code": _CODE_313,
        "object": ("size", "ob_type"),
        "type": _TYPE,
        **_BEFORE_BYTES_313,
        "bytes": _BYTES,
        "string": _STRING,
    },
    (3, 14): {
        "runtime": _RUNTIME,
        "interpreter": _INTERPRETER,
        "thread": _THREAD,
        "frame": _FRAME,
        "code": _CODE,
        "object": ("size", "ob_type"),
        "type": _TYPE,
        **_BEFORE_BYTES,
        "bytes": _BYTES,
        "string": _STRING,
    },
    (3, 15): {
        "runtime": _RUNTIME,
        "interpreter": _INTERPRETER,
        "thread": _THREAD_315,
        "err_stackitem": ("exc_value",),
        "frame": _FRAME,
        "code": _CODE,
        "object": ("size", "ob_type"),
        "type": (*_TYPE, "tp_basicsize", "tp_dictoffset"),
        "heap_type": ("size", "ht_cached_keys"),
        **_BEFORE_BYTES,
        "bytes": _BYTES,
        "string": _STRING,
    },
}
"""Groups in their order, each with its fields, as far as they are needed."""

DESCRIBED: Final = frozenset(_TABLES)
"""Versions whose table is known."""


class NoSense(Exception):
    """The table is cut short, or says what cannot be; the text says which."""


def described(runtime: bytes, version: tuple[int, int]) -> Layout:
    """The layout that the beginning of `_PyRuntime` states. `version` is in DESCRIBED. Raises NoSense."""
    if len(runtime) < DEBUG_OFFSETS_BYTES:
        raise NoSense("its _PyRuntime is cut short")
    words = iter(struct.unpack_from(f"<{(DEBUG_OFFSETS_BYTES - 24) // 8}Q", runtime, 24))
    table = {group: {name: next(words) for name in names} for group, names in _TABLES[version].items()}
    free_threaded = struct.unpack_from("<Q", runtime, 16)[0] != 0
    thread, frame, code, string = table["thread"], table["frame"], table["code"], table["string"]
    found = Layout(
        interpreters_head=table["runtime"]["interpreters_head"],
        interpreter_next=table["interpreter"]["next"],
        threads_head=table["interpreter"]["threads_head"],
        code_generation=table["interpreter"].get("code_object_generation", 0),
        thread_next=thread["next"],
        thread_id=thread["thread_id"],
        thread_frame=thread["current_frame"],
        frame_code=frame["executable"],
        frame_previous=frame["previous"],
        frame_instruction=frame["instr_ptr"],
        frame_owner=frame["owner"],
        frame_bytecode=frame.get("tlbc_index", 0) if free_threaded else 0,
        frame_versioned=frame["executable"],
        version=_version_of_code(code) if version == (3, 13) else 0,
        code_first_line=code["firstlineno"],
        code_file=code["filename"],
        code_name=code["qualname"],
        code_lines=code["linetable"],
        code_instructions=code["co_code_adaptive"],
        code_tag=3 if version >= (3, 14) else 0,
        code_bytecodes=code.get("co_tlbc", 0) if free_threaded else 0,
        object_type=table["object"]["ob_type"],
        type_name=table["type"]["tp_name"],
        type_flags=table["type"]["tp_flags"],
        string_length=string["length"],
        string_state=string["state"],
        # From 3.14 on, free-threaded builds keep `interned` in a byte of its own before `kind`; others in two bits.
        string_kind=8 if free_threaded and version >= (3, 14) else 2,
        string_ascii=string["asciiobject_size"],
        string_compact=string["asciiobject_size"] + 16,
        bytes_size=table["bytes"]["ob_size"],
        bytes_data=table["bytes"]["ob_sval"],
    )
    _check(found)
    return found


def _version_of_code(code: dict[str, int]) -> int:
    """Where co_version is. The table does not say; 0 when what lies around it is not where it was in 3.13.0."""
    head = code["filename"] - 112  # 16 in free-threaded builds, whose objects have longer heads
    return CODE_VERSION + head if head in (0, 16) and code["firstlineno"] == 68 + head else 0


def _check(found: Layout) -> None:
    """Refuse what the walk could not read: it takes 80 bytes of a frame and 160 of a code object."""
    frame = (found.frame_code, found.frame_previous, found.frame_instruction)
    code = (found.code_file, found.code_name, found.code_lines, found.object_type)
    anywhere = (
        *(found.interpreters_head, found.interpreter_next, found.threads_head, found.code_generation),
        *(found.thread_next, found.thread_id, found.thread_frame, found.code_instructions),
        *(found.code_bytecodes, found.type_name, found.type_flags, found.string_length),
        *(found.string_state, found.string_ascii, found.bytes_size, found.bytes_data),
    )
    if any(offset > 72 or offset % 8 for offset in (*frame, found.frame_bytecode)) or found.frame_owner >= 80:
        raise NoSense("the offsets in a frame make no sense")
    if any(offset > 152 or offset % 8 for offset in code) or found.code_first_line > 156:
        raise NoSense("the offsets in a code object make no sense")
    if any(offset > 1 << 20 for offset in anywhere) or abs(found.thread_id - found.thread_frame) > 240:
        raise NoSense("the offsets in its _PyRuntime make no sense")
