# SPDX-License-Identifier: Apache-2.0
"""Where CPython 3.8 to 3.12 keep their frames: versions that do not describe themselves.

The numbers are what `offsetof` gives with the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; a minor version
does not change these structures once it is released. A test compares them with the headers of the interpreters that it
finds.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class LinesFormat(IntEnum):
    """What is in a code object's line table."""

    LNOTAB = 1
    """`co_lnotab` of 3.8 and 3.9."""
    RANGES = 2
    """`co_linetable` of 3.10."""
    LOCATIONS = 3
    """`co_linetable` of 3.11 and newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Offsets in bytes; the names are those of struct interpreter in bpf/gpuheap.h."""

    interpreters_head: int
    interpreter_next: int = 0
    threads_head: int
    code_generation: int = 0
    thread_next: int = 8
    thread_id: int
    thread_frame: int
    thread_cframe: int = 0
    cframe_frame: int = -1
    frames_apart: int = 0
    frame_code: int
    frame_previous: int
    frame_instruction: int
    instruction_unit: int = 0
    frame_owner: int = -1
    frame_entry: int = -1
    frame_bytecode: int = 0
    frame_versioned: int
    version: int = 0
    code_first_line: int
    code_file: int
    code_name: int
    code_lines: int
    code_instructions: int = 0
    code_tag: int = 0
    code_bytecodes: int = 0
    code_counter: int = 0
    object_type: int = 8
    type_name: int = 24
    type_flags: int = 168
    string_length: int = 16
    string_state: int = 32
    string_kind: int = 2
    string_ascii: int = 48
    string_compact: int = 72
    bytes_size: int = 16
    bytes_data: int = 32
    lines_format: int = LinesFormat.LOCATIONS


# Numbers that are never given again within a process, by which the kernel side recognises a stack (bpf/python.bpf.h):
# PyFunctionObject.func_version of 3.11.7 (0 until the function is called from specialised code), and
# PyCodeObject.co_version of 3.12.1 and 3.13.0. Where there is none, contents are compared.
FUNCTION_VERSION: Final = 128
CODE_VERSION: Final = 92


def _before_311(*, last_instruction: int, unit: int, lines: LinesFormat, cframe: int = 0) -> Layout:
    """Frames are objects, each with its run of the evaluation function; functions have no qualified names."""
    return Layout(
        interpreters_head=32,
        threads_head=8,
        thread_id=176,
        thread_frame=24,
        thread_cframe=cframe,
        frames_apart=1,
        frame_code=32,
        frame_previous=24,
        frame_instruction=last_instruction,
        instruction_unit=unit,
        frame_versioned=32,
        code_first_line=40,
        code_file=104,
        code_name=112,
        code_lines=120,
        lines_format=lines,
    )


LAYOUTS: Final = {
    (3, 8): _before_311(last_instruction=104, unit=1, lines=LinesFormat.LNOTAB),
    (3, 9): _before_311(last_instruction=104, unit=1, lines=LinesFormat.LNOTAB),
    (3, 10): _before_311(last_instruction=96, unit=2, lines=LinesFormat.RANGES, cframe=48),
    (3, 11): Layout(
        interpreters_head=40,
        threads_head=16,
        thread_id=152,
        thread_frame=56,
        cframe_frame=8,
        frame_code=32,
        frame_previous=48,
        frame_instruction=56,
        frame_owner=69,
        frame_entry=68,
        frame_versioned=0,  # f_func
        version=FUNCTION_VERSION,
        code_first_line=72,
        code_file=112,
        code_name=128,
        code_lines=136,
        code_instructions=184,
    ),
    (3, 12): Layout(
        interpreters_head=40,
        threads_head=72,
        thread_id=136,
        thread_frame=56,
        cframe_frame=0,
        frame_code=0,
        frame_previous=8,
        frame_instruction=56,
        frame_owner=70,
        frame_versioned=0,  # f_code
        version=CODE_VERSION,
        code_first_line=68,
        code_file=112,
        code_name=128,
        code_lines=136,
        code_instructions=192,
        string_ascii=40,  # 3.12 has no `wstr` any more
        string_compact=56,
    ),
}
