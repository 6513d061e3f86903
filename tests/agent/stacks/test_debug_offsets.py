# SPDX-License-Identifier: Apache-2.0
"""What CPython 3.14 and 3.15 say of themselves, as their headers write it, against where their headers have it.

With and without the GIL: nobody packs the free-threaded builds, and their headers are those of the others.
"""

import struct
import subprocess
from pathlib import Path

import pytest

from gpuheap.stacks.cpython import layout
from gpuheap.stacks.debug_offsets import DEBUG_OFFSETS_BYTES
from tests.debian import NotObtainable
from tests.interpreters.archive import unstable_headers

PROGRAM = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interpframe.h"
#include "internal/pycore_debug_offsets.h"
#define SAY(field, type, member) fprintf(stderr, #field " %zu\\n", offsetof(type, member))
int main(void)
{
    struct _Py_DebugOffsets table = _Py_DebugOffsets_INIT(_Py_Debug_Cookie);
    PyASCIIObject text;
    unsigned bit = 0, word;

    fwrite(&table, sizeof(table), 1, stdout);
    SAY(interpreters_head, _PyRuntimeState, interpreters.head);
    SAY(interpreter_next, PyInterpreterState, next);
    SAY(threads_head, PyInterpreterState, threads.head);
    SAY(code_generation, PyInterpreterState, _code_object_generation);
    SAY(thread_next, PyThreadState, next);
    SAY(thread_id, PyThreadState, thread_id);
    SAY(thread_frame, PyThreadState, current_frame);
    SAY(frame_code, _PyInterpreterFrame, f_executable);
    SAY(frame_previous, _PyInterpreterFrame, previous);
    SAY(frame_instruction, _PyInterpreterFrame, instr_ptr);
    SAY(frame_owner, _PyInterpreterFrame, owner);
    SAY(code_first_line, PyCodeObject, co_firstlineno);
    SAY(code_file, PyCodeObject, co_filename);
    SAY(code_name, PyCodeObject, co_qualname);
    SAY(code_lines, PyCodeObject, co_linetable);
    SAY(code_instructions, PyCodeObject, co_code_adaptive);
#ifdef Py_GIL_DISABLED
    SAY(frame_bytecode, _PyInterpreterFrame, tlbc_index);
    SAY(code_bytecodes, PyCodeObject, co_tlbc);
#endif
    SAY(object_type, PyObject, ob_type);
    SAY(type_name, PyTypeObject, tp_name);
    SAY(type_flags, PyTypeObject, tp_flags);
    SAY(string_length, PyASCIIObject, length);
    SAY(string_state, PyASCIIObject, state);
    fprintf(stderr, "string_ascii %zu\\n", sizeof(PyASCIIObject));
    fprintf(stderr, "string_compact %zu\\n", sizeof(PyCompactUnicodeObject));
    SAY(bytes_size, PyVarObject, ob_size);
    SAY(bytes_data, PyBytesObject, ob_sval);
    memset(&text, 0, sizeof(text));
    text.state.kind = 1;
    memcpy(&word, &text.state, sizeof(word));
    while (!(word >> bit & 1))
        bit++;
    fprintf(stderr, "string_kind %u\\n", bit);
}
"""


@pytest.mark.parametrize("free_threaded", [False, True], ids=["with the GIL", "free-threaded"])
@pytest.mark.parametrize("version", [(3, 14), (3, 15)], ids=["3.14", "3.15"])
def test_what_a_version_says_of_itself_is_read_as_its_headers_have_it(
    version: tuple[int, int], free_threaded: bool, tmp_path: Path
) -> None:
    try:
        root = unstable_headers() / "include"
    except NotObtainable as reason:
        pytest.skip(f"the headers of Debian's unstable Pythons: {reason}")
    name = f"python{version[0]}.{version[1]}"
    source, program = tmp_path / "offsets.c", tmp_path / "offsets"
    source.write_text("#define Py_GIL_DISABLED 1\n" + PROGRAM if free_threaded else PROGRAM)
    include = [f"-I{root}/{name}", f"-I{root}", f"-I{root}/{name}/internal"]
    subprocess.run(["gcc", "-w", *include, "-o", program, source], check=True)
    said = subprocess.run([program], check=True, capture_output=True)
    wanted = {name: int(number) for name, number in map(str.split, said.stderr.decode().splitlines())}
    assert struct.unpack_from("<Q", said.stdout, 16)[0] == free_threaded
    found = layout(None, (), said.stdout.ljust(DEBUG_OFFSETS_BYTES, b"\0"))
    assert found.version == version
    assert {name: getattr(found.layout, name) for name in wanted} == wanted
