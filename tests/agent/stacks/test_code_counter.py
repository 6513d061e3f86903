# SPDX-License-Identifier: Apache-2.0
"""Where an interpreter counts its code objects: found by a pointer in the file, true by what its own headers say."""

import subprocess
from pathlib import Path

import pytest

from gpuheap.stacks.cpython import code_counter
from gpuheap.tracer.interpreter_files import installed_interpreters, interpreter_file, with_code_counter

POOL_BYTES = 2304
"""PRIVATE_MEM of Include/internal/pycore_dtoa.h: (2304 + sizeof(double) - 1) / sizeof(double) doubles."""

ONE, TWO = (1).to_bytes(4, "little"), (2).to_bytes(4, "little")

PROGRAM = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#include <stddef.h>
#include <stdio.h>
int main(void)
{
    printf("%zu\\n", offsetof(_PyRuntimeState, _main_interpreter) + offsetof(PyInterpreterState, func_state)
                     + offsetof(struct _py_func_state, next_version));
}
"""


def runtime(*counters: tuple[int, bytes]) -> bytes:
    """A `_PyRuntime` of zeros but for these places."""
    content = bytearray(16384)
    for place, value in counters:
        content[place : place + len(value)] = value
    return bytes(content)


def test_the_counter_is_behind_the_pointer_to_the_pool_that_lies_before_it() -> None:
    pointers = {8000: 8000 - POOL_BYTES, 9000: 100, 9008: 9008}
    assert code_counter((3, 13), runtime((8008, ONE)), pointers) == 8008


def test_behind_the_right_pointer_is_a_1_in_the_file() -> None:
    pointers = {8000: 8000 - POOL_BYTES, 12000: 12000 - POOL_BYTES}
    assert code_counter((3, 13), runtime((8008, TWO), (12008, ONE)), pointers) == 12008


@pytest.mark.parametrize(
    ("version", "content", "pointers"),
    [
        pytest.param((3, 12), runtime((8008, ONE)), {8000: 8000 - POOL_BYTES}, id="older"),
        pytest.param((3, 14), runtime((8008, ONE)), {8000: 8000 - POOL_BYTES}, id="newer"),
        pytest.param((3, 13), runtime((8008, ONE)), {}, id="no pointers"),
        pytest.param((3, 13), runtime((8008, ONE)), {8000: 8008 - POOL_BYTES}, id="no such pointer"),
        pytest.param((3, 13), runtime((8008, TWO)), {8000: 8000 - POOL_BYTES}, id="it does not begin with 1"),
        pytest.param(
            (3, 13),
            runtime((8008, ONE), (12008, ONE)),
            {8000: 8000 - POOL_BYTES, 12000: 12000 - POOL_BYTES},
            id="two places",
        ),
        pytest.param((3, 13), b"", {8000: 8000 - POOL_BYTES}, id="nothing in the file"),
        pytest.param((3, 13), runtime()[:8010], {8000: 8000 - POOL_BYTES}, id="cut short"),
    ],
)
def test_where_it_is_not_certain_there_is_none(
    version: tuple[int, int], content: bytes, pointers: dict[int, int]
) -> None:
    assert code_counter(version, content, pointers) == 0


def interpreters() -> dict[Path, Path]:
    """Interpreters of the version that has a counter, on PATH or of pyenv, each with its internal headers."""
    programs = [
        *installed_interpreters(),
        *(Path.home() / ".pyenv/versions").glob("3.13.*/bin/python3.13"),
    ]
    found = {}
    for path in sorted({program.resolve() for program in programs}):
        headers = path.parent.parent / "include" / "python3.13"
        if path.name == "python3.13" and (headers / "internal/pycore_interp.h").exists():
            found[path] = headers
    return found


@pytest.mark.parametrize("path", interpreters() or [None], ids=str)
def test_the_counter_of_an_interpreter_here_is_where_its_headers_say(
    path: Path | None, tmp_path: Path
) -> None:
    if path is None:
        pytest.skip("no CPython 3.13 with its internal headers is installed here")
    source, program = tmp_path / "offset.c", tmp_path / "offset"
    source.write_text(PROGRAM)
    headers = interpreters()[path]
    include = [f"-I{headers}", f"-I{headers}/internal"]
    subprocess.run(["gcc", *include, "-o", program, source], check=True, capture_output=True)
    expected = int(subprocess.run([program], check=True, capture_output=True).stdout)
    libraries = sorted((path.parent.parent / "lib").glob("libpython3.13.so.1.0"))
    files = [
        with_code_counter(found, file) for file in (path, *libraries) if (found := interpreter_file(file))
    ]
    assert files, f"{path} is no interpreter"
    assert [file.layout.code_counter for file in files] == [expected] * len(files)
