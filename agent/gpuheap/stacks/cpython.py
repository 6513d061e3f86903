# SPDX-License-Identifier: Apache-2.0
"""Where each version of CPython keeps its frames: layouts for the walk in bpf/python.bpf.h.

From 3.13 on an interpreter describes itself: `_PyRuntime` begins with a table of offsets (`_Py_DebugOffsets` in
Include/internal/pycore_debug_offsets.h of each version), which is read from its file. 3.11 and 3.12 have none; theirs
are what `offsetof` gives with the headers of 3.11.7 and 3.12.1.

A version that is not known here is never guessed at.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COOKIE: Final = b"xdebugpy"
DEBUG_OFFSETS_BYTES: Final = 512
SUPPORTED: Final = "3.11 to 3.14"

# PyASCIIObject and PyCompactUnicodeObject since 3.12, when they lost `wstr`.
_STRING: Final = {"string_length": 16, "string_state": 32, "string_ascii": 40, "string_compact": 56}

# Numbers that are never given again within a process, by which the kernel side recognises a stack (bpf/python.bpf.h):
# PyFunctionObject.func_version of 3.11.7 (0 until the function is called from specialised code), and
# PyCodeObject.co_version of 3.12.1 and 3.13.0. Where there is none, contents are compared.
_FUNCTION_VERSION: Final = 128
_CODE_VERSION: Final = 92


COUNTING: Final = ((3, 12), (3, 13))
_DTOA_POOL_BYTES: Final = 2304  # PRIVATE_MEM in Include/internal/pycore_dtoa.h


class Unsupported(Exception):
    """The interpreter's layout is not known; the text names the version or what is odd about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Offsets in bytes; the names are those of struct interpreter in bpf/gpuheap.h."""

    interpreters_head: int
    threads_head: int
    code_generation: int
    thread_next: int
    thread_id: int
    thread_frame: int
    cframe_frame: int
    frame_code: int
    frame_previous: int
    frame_instruction: int
    frame_owner: int
    frame_versioned: int
    version: int
    code_first_line: int
    code_file: int
    code_name: int
    code_lines: int
    code_instructions: int
    code_tag: int
    string_length: int
    string_state: int
    string_ascii: int
    string_compact: int
    frame_entry: int = -1
    code_counter: int = 0


_LAYOUTS: Final = {
    (3, 11): Layout(
        interpreters_head=40,
        threads_head=16,
        code_generation=0,
        thread_next=8,
        thread_id=152,
        thread_frame=56,
        cframe_frame=8,
        frame_code=32,
        frame_previous=48,
        frame_instruction=56,
        frame_owner=69,
        frame_entry=68,
        frame_versioned=0,  # f_func
        version=_FUNCTION_VERSION,
        code_first_line=72,
        code_file=112,
        code_name=128,
        code_lines=136,
        code_instructions=184,
        code_tag=0,
        string_length=16,
        string_state=32,
        string_ascii=48,
        string_compact=72,
    ),
    (3, 12): Layout(
        interpreters_head=40,
        threads_head=72,
        code_generation=0,
        thread_next=8,
        thread_id=136,
        thread_frame=56,
        cframe_frame=0,
        frame_code=0,
        frame_previous=8,
        frame_instruction=56,
        frame_owner=70,
        frame_versioned=0,  # f_code
        version=_CODE_VERSION,
        code_first_line=68,
        code_file=112,
        code_name=128,
        code_lines=136,
        code_instructions=192,
        code_tag=0,
        **_STRING,
    ),
}

# The groups of _Py_DebugOffsets that are needed, in order, with their fields; each field is a 64-bit word.
_RUNTIME: Final = ("size", "finalizing", "interpreters_head")
_GIL: Final = ("ceval_gil", "gil_runtime_state", "gil_enabled", "gil_locked", "gil_holder")
_MODULES: Final = ("gc", "imports_modules", "sysdict", "builtins")
_INTERPRETER_313: Final = ("size", "id", "next", "threads_head", *_MODULES, *_GIL)
_INTERPRETER_314: Final = (
    *("size", "id", "next", "threads_head", "threads_main", *_MODULES, *_GIL),
    *("code_object_generation", "tlbc_generation"),
)
_THREAD: Final = (
    *("size", "prev", "next", "interp", "current_frame", "thread_id", "native_thread_id"),
    *("datastack_chunk", "status"),
)
_FRAME_313: Final = ("size", "previous", "executable", "instr_ptr", "localsplus", "owner")
_CODE: Final = (
    *("size", "filename", "name", "qualname", "linetable", "firstlineno", "argcount", "localsplusnames"),
    *("localspluskinds", "co_code_adaptive"),
)
_GROUPS: Final = {
    (3, 13): (_RUNTIME, _INTERPRETER_313, _THREAD, _FRAME_313, _CODE),
    (3, 14): (_RUNTIME, _INTERPRETER_314, _THREAD, (*_FRAME_313, "stackpointer", "tlbc_index"), _CODE),
}


def code_counter(version: tuple[int, int], runtime: bytes, pointers: Mapping[int, int]) -> int:
    """Where in `_PyRuntime` the main interpreter counts the code objects that it has made; 0 when it was not found.

    `func_state.next_version` of 3.12 and 3.13: each new code object takes a number there, and functions can. In these
    versions it comes right behind the dtoa state (Include/internal/pycore_interp.h), whose last field points at its
    own memory pool, 2304 bytes before: no other pointer does. In the file it is 1. Where it is, differs with the patch
    version; `pointers` are those in `_PyRuntime` to itself.
    """
    if version not in COUNTING:
        return 0
    places = [place + 8 for place, target in pointers.items() if place - target == _DTOA_POOL_BYTES]
    counters = [place for place in places if runtime[place : place + 4] == b"\1\0\0\0"]
    return counters[0] if len(counters) == 1 else 0


def layout(version: tuple[int, int] | None, runtime: bytes) -> tuple[tuple[int, int], Layout]:
    """The version and its layout.

    `runtime` is the beginning of `_PyRuntime` in the interpreter's file; `version` is what it exports as `Py_Version`
    (None before 3.11), needed only before 3.13. Raises Unsupported.
    """
    if runtime.startswith(COOKIE):
        return _described(runtime)
    if version is None:
        raise Unsupported(f"CPython older than 3.11 is not supported (supported: {SUPPORTED})")
    if version not in _LAYOUTS:
        raise Unsupported(f"CPython {version[0]}.{version[1]} is not supported (supported: {SUPPORTED})")
    return version, _LAYOUTS[version]


def _described(runtime: bytes) -> tuple[tuple[int, int], Layout]:
    if len(runtime) < DEBUG_OFFSETS_BYTES:
        raise Unsupported("its _PyRuntime is cut short")
    hexversion, free_threaded = struct.unpack_from("<QQ", runtime, len(COOKIE))
    version = (hexversion >> 24 & 0xFF, hexversion >> 16 & 0xFF)
    if version not in _GROUPS:
        raise Unsupported(f"CPython {version[0]}.{version[1]} is not supported (supported: {SUPPORTED})")
    if free_threaded:
        raise Unsupported(f"free-threaded CPython {version[0]}.{version[1]} is not supported")
    words = iter(struct.unpack_from(f"<{(DEBUG_OFFSETS_BYTES - 24) // 8}Q", runtime, 24))
    state, interpreter, thread, frame, code = (
        {name: next(words) for name in group} for group in _GROUPS[version]
    )
    found = Layout(
        interpreters_head=state["interpreters_head"],
        threads_head=interpreter["threads_head"],
        code_generation=interpreter.get("code_object_generation", 0),
        thread_next=thread["next"],
        thread_id=thread["thread_id"],
        thread_frame=thread["current_frame"],
        cframe_frame=-1,
        frame_code=frame["executable"],
        frame_previous=frame["previous"],
        frame_instruction=frame["instr_ptr"],
        frame_owner=frame["owner"],
        frame_versioned=frame["executable"],
        version=_CODE_VERSION
        if version == (3, 13) and (code["firstlineno"], code["filename"]) == (68, 112)
        else 0,
        code_first_line=code["firstlineno"],
        code_file=code["filename"],
        code_name=code["qualname"],
        code_lines=code["linetable"],
        code_instructions=code["co_code_adaptive"],
        code_tag=3 if version >= (3, 14) else 0,
        **_STRING,
    )
    _check(found, version)
    return version, found


def _check(found: Layout, version: tuple[int, int]) -> None:
    """Refuse what the walk could not read: it takes 80 bytes of a frame and 160 of a code object."""
    frame = (found.frame_code, found.frame_previous, found.frame_instruction)
    code = (found.code_first_line, found.code_file, found.code_name, found.code_lines)
    bounded = all(offset <= 72 for offset in frame) and found.frame_owner < 80 and all(o <= 152 for o in code)
    aligned = all(offset % 8 == 0 for offset in (*frame, found.code_file, found.code_name, found.code_lines))
    heads = (found.threads_head, found.interpreters_head, found.code_generation)
    span = abs(found.thread_id - found.thread_frame) + 8
    if span > 248 or not bounded or not aligned or any(offset > 1 << 20 for offset in heads):
        raise Unsupported(f"the offsets in CPython {version[0]}.{version[1]}'s _PyRuntime make no sense")
