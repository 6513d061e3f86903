# SPDX-License-Identifier: Apache-2.0
"""Which layout an interpreter gets: the numbers against the headers of those that are here, and what is refused."""

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.stacks.cpython import FIRST_EXPORTED, Unsupported, layout
from gpuheap.stacks.cpython_layouts import LAYOUTS
from gpuheap.stacks.debug_offsets import COOKIE, DEBUG_OFFSETS_BYTES

OFFSETS = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x03090000
#include <internal/pycore_pystate.h>
#else
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
typedef _PyInterpreterFrame Frame;
#define PREVIOUS previous
#define INSTRUCTION prev_instr
#define LINES co_linetable
#define NAME co_qualname
#define FRAME cframe
#define HEAD threads.head
#else
typedef PyFrameObject Frame;
#define PREVIOUS f_back
#define INSTRUCTION f_lasti
#if PY_VERSION_HEX >= 0x030a0000
#define LINES co_linetable
#else
#define LINES co_lnotab
#endif
#define NAME co_name
#define FRAME frame
#define HEAD tstate_head
#endif
#define SAY(field, type, member) printf(#field " %zu\\n", offsetof(type, member))
int main(void)
{
    SAY(interpreters_head, _PyRuntimeState, interpreters.head);
    SAY(interpreter_next, PyInterpreterState, next);
    SAY(threads_head, PyInterpreterState, HEAD);
    SAY(thread_next, PyThreadState, next);
    SAY(thread_id, PyThreadState, thread_id);
    SAY(thread_frame, PyThreadState, FRAME);
    SAY(frame_code, Frame, f_code);
    SAY(frame_previous, Frame, PREVIOUS);
    SAY(frame_instruction, Frame, INSTRUCTION);
#if PY_VERSION_HEX >= 0x030b0000
    SAY(cframe_frame, _PyCFrame, current_frame);
    SAY(frame_owner, Frame, owner);
    SAY(code_instructions, PyCodeObject, co_code_adaptive);
#endif
#if PY_VERSION_HEX >= 0x030a0000 && PY_VERSION_HEX < 0x030b0000
    SAY(thread_cframe, PyThreadState, cframe);
#endif
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
    SAY(frame_entry, Frame, is_entry);
#endif
    SAY(code_first_line, PyCodeObject, co_firstlineno);
    SAY(code_file, PyCodeObject, co_filename);
    SAY(code_name, PyCodeObject, NAME);
    SAY(code_lines, PyCodeObject, LINES);
    SAY(object_type, PyObject, ob_type);
    SAY(type_name, PyTypeObject, tp_name);
    SAY(type_flags, PyTypeObject, tp_flags);
    SAY(string_length, PyASCIIObject, length);
    SAY(string_state, PyASCIIObject, state);
    printf("string_ascii %zu\\n", sizeof(PyASCIIObject));
    printf("string_compact %zu\\n", sizeof(PyCompactUnicodeObject));
    SAY(bytes_size, PyVarObject, ob_size);
    SAY(bytes_data, PyBytesObject, ob_sval);
}
"""


def headers(version: tuple[int, int]) -> Path | None:
    name = f"{version[0]}.{version[1]}"
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{name}.*/include/python{name}/internal"))
    return found[-1].parent if found else None


@pytest.mark.parametrize("version", LAYOUTS, ids=lambda version: f"{version[0]}.{version[1]}")
def test_a_layout_is_what_the_headers_of_its_version_say(version: tuple[int, int], tmp_path: Path) -> None:
    folder = headers(version)
    if folder is None:
        pytest.skip(f"pyenv has no CPython {version[0]}.{version[1]} with internal headers here")
    source, program = tmp_path / "offsets.c", tmp_path / "offsets"
    source.write_text(OFFSETS)
    include = [f"-I{folder}", f"-I{folder}/internal"]
    subprocess.run(["gcc", "-w", *include, "-o", program, source], check=True, capture_output=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    wanted = {name: int(number) for name, number in map(str.split, said.splitlines())}
    assert {name: getattr(LAYOUTS[version], name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("exported", "version"),
    [("Py_InitializeFromConfig", (3, 8)), ("PyFrame_GetCode", (3, 9)), ("Py_NewRef", (3, 10))],
)
def test_versions_that_do_not_name_themselves_are_told_by_what_they_export(
    exported: str, version: tuple[int, int]
) -> None:
    names = {name for first, name in FIRST_EXPORTED.items() if first <= version}
    assert exported in names
    assert layout(None, names, b"").version == version


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (None, "CPython older than 3.8 is not supported"),
        (0x030B00A3, "a CPython 3.11 from before its release candidates"),
        (0x030D00F0, "CPython 3.13 is not supported"),  # it would have a table
        (0x031000F0, "CPython 3.16 is not supported"),
    ],
)
def test_what_is_not_known_is_named_and_refused(number: int | None, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        layout(number, (), b"")


def table(hexversion: int, rest: bytes) -> bytes:
    return (COOKIE + struct.pack("<QQ", hexversion, 0) + rest).ljust(DEBUG_OFFSETS_BYTES, b"\0")


def test_a_table_of_a_version_to_come_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"CPython 3\.16 is not supported"):
        layout(None, (), table(0x031000F0, b""))


def test_a_table_whose_offsets_lead_anywhere_is_refused() -> None:
    with pytest.raises(Unsupported, match="make no sense"):
        layout(None, (), table(0x030F00F0, b"\xff" * 800))


@given(st.binary(min_size=800, max_size=1000), st.sampled_from([0x030D00F0, 0x030E00F0, 0x030F00F0]))
def test_any_table_is_refused_or_stays_within_what_the_walk_reads(content: bytes, number: int) -> None:
    try:
        found = layout(None, (), table(number, content)).layout
    except Unsupported:
        return
    assert max(found.frame_code, found.frame_previous, found.frame_instruction) <= 72
    assert max(found.code_file, found.code_name, found.code_lines, found.object_type) <= 152
