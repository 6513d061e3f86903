# SPDX-License-Identifier: Apache-2.0
"""Pythons that are not started as `python`: embedded, renamed, in a venv; several interpreters in one; many threads."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of
from tests.debian import NotObtainable
from tests.interpreters.found import NAMES, command, version

pytestmark = pytest.mark.bpf

ALLOCATES = """\
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)

def allocate(size):
    driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))

"""

ENDS = "print('ready', flush=True)\nsys.stdin.readline()\n"

EMBEDS = """\
#include <Python.h>
int main(int count, char **words)
{
    Py_Initialize();
    int failed = PyRun_SimpleString(words[1]);
    Py_Finalize();
    return failed;
}
"""

SUBINTERPRETERS = (
    ALLOCATES
    + """\
try:
    import _interpreters
    inner = _interpreters.create("legacy")
    run = _interpreters.run_string if hasattr(_interpreters, "run_string") else _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    inner = _interpreters.create(isolated=False) if sys.version_info > (3, 8) else _interpreters.create()
    run = _interpreters.run_string

def within():
    allocate(10)
    run(inner, SOURCE + "def nested(): allocate(20)\\n" + "nested()\\n")
    allocate(30)

within()
"""
)


def stacks(tracer: Tracer, pid: int) -> dict[int, list[str]]:
    """Functions by the bytes allocated."""
    sites = of(tracer.read(), pid).items()
    return {totals.allocated_bytes: [frame.function for frame in site.stack] for site, totals in sites}


@pytest.fixture(
    params=[name for name in NAMES if name.endswith(("pyenv", "debian", "built")) and version(name) > (3, 8)]
)
def python(request: pytest.FixtureRequest) -> tuple[str, ...]:
    try:
        return command(request.param)
    except NotObtainable as reason:
        pytest.skip(f"no CPython {request.param}: {reason}")


@pytest.mark.parametrize("linked", ["shared", "static"])
def test_a_program_that_embeds_python_has_its_stacks_whatever_its_name(
    start: Callable[..., Program], tracer: Tracer, tmp_path: Path, linked: str
) -> None:
    source, program = tmp_path / "server.c", tmp_path / "server"
    source.write_text(EMBEDS)
    try:
        (path,) = command("3.12-pyenv")
    except NotObtainable as reason:
        pytest.skip(f"no CPython with headers: {reason}")
    home = Path(path).parent.parent
    flags = ["-L" + str(home / "lib"), f"-Wl,-rpath,{home}/lib", "-lpython3.12"]
    if linked == "static":
        archive = next((home / "lib" / "python3.12").glob("config-*/libpython3.12.a"))
        flags = ["-Wl,-export-dynamic", str(archive), "-ldl", "-lm", "-lutil", "-lpthread"]
    build = ["gcc", "-o", str(program), str(source), f"-I{home}/include/python3.12", *flags]
    subprocess.run(build, check=True, capture_output=True)
    if linked == "static":
        subprocess.run(["strip", program], check=True)
    body = ALLOCATES + "def serve(): allocate(64)\nserve()\n" + ENDS
    for _ in range(2):  # the first one makes its file known
        running = start("env", f"PYTHONHOME={home}", program, body)
        assert running.line() == "ready"
        seen = stacks(tracer, running.pid)
    assert seen == {64: ["<module>", "serve", "allocate"]}


def test_an_interpreter_under_another_name_has_its_stacks(
    start: Callable[..., Program], tracer: Tracer, tmp_path: Path
) -> None:
    try:
        (path,) = command("3.14-standalone")
    except NotObtainable as reason:
        pytest.skip(str(reason))
    renamed = tmp_path / "worker"
    shutil.copy(path, renamed)
    body = ALLOCATES + "allocate(64)\n" + ENDS
    for _ in range(2):
        running = start("env", f"PYTHONHOME={Path(path).parent.parent}", renamed, "-c", body)
        assert running.line() == "ready"
    assert stacks(tracer, running.pid) == {64: ["<module>", "allocate"]}


def test_a_virtual_environment_has_the_stacks_of_its_interpreter(
    start: Callable[..., Program], tracer: Tracer, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    running = start(tmp_path / "venv" / "bin" / "python", "-c", ALLOCATES + "allocate(64)\n" + ENDS)
    assert running.line() == "ready"
    assert stacks(tracer, running.pid) == {64: ["<module>", "allocate"]}


def test_a_thread_in_several_interpreters_has_the_functions_of_the_innermost(
    start: Callable[..., Program], tracer: Tracer, python: tuple[str, ...]
) -> None:
    start(*python, "-c", "print(1, flush=True); input()").line()
    running = start(*python, "-c", f"SOURCE = {ALLOCATES!r}\n" + SUBINTERPRETERS + ENDS)
    assert running.line() == "ready"
    assert stacks(tracer, running.pid) == {
        10: ["<module>", "within", "allocate"],
        20: ["<module>", "nested", "allocate"],
        30: ["<module>", "within", "allocate"],
    }


def test_the_oldest_of_a_thousand_threads_is_found(
    start: Callable[..., Program], tracer: Tracer, losses: Callable[[], dict[str, int]]
) -> None:
    body = ALLOCATES + (
        "import threading\n"
        "threading.stack_size(1 << 18)\n"
        "ready, end = threading.Barrier(1001), threading.Event()\n"
        "def wait():\n    ready.wait()\n    end.wait()\n"
        "threads = [threading.Thread(target=wait) for _ in range(1000)]\n"
        "for thread in threads: thread.start()\n"
        "ready.wait()\nallocate(64)\n"
    )
    running = start(sys.executable, "-c", body + ENDS.replace("readline()", "readline(); end.set()"))
    assert running.line() == "ready"
    assert stacks(tracer, running.pid) == {64: ["<module>", "allocate"]}
    assert "no_thread_state" not in losses()


CHANGED = """
import ctypes, sys
kind = type(compile("", "", "exec"))
place = ctypes.c_void_p.from_address(id(kind) + 24)
name = ctypes.create_string_buffer(b"kode")
kept, place.value = place.value, ctypes.addressof(name)
allocate(64)
place.value = kept
"""


def test_what_does_not_call_itself_code_is_not_described(
    start: Callable[..., Program], tracer: Tracer, losses: Callable[[], dict[str, int]]
) -> None:
    """As with an interpreter whose structures are elsewhere than its version has them."""
    running = start(sys.executable, "-c", ALLOCATES + CHANGED + ENDS)
    assert running.line() == "ready"
    assert stacks(tracer, running.pid) == {64: ["<not the Python that it says>"]}
    assert losses()["implausible_stack"] == 1


FORKS = """
import os
allocate(32)
kind = type(compile("", "", "exec"))
name = ctypes.c_uint64.from_address(id(kind) + 24).value
madvise = ctypes.CDLL(None).madvise
child = os.fork()
if child == 0:
    failed = madvise(ctypes.c_void_p(name & ~4095), ctypes.c_size_t(4096), 4)
    allocate(64)
    os._exit(failed)
assert os.waitpid(child, 0)[1] == 0
print(child, flush=True)
"""


def test_a_forked_child_is_known_though_it_does_not_have_the_pages_of_its_interpreters_file(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    """It gets each when it touches it. That of the name of the type `code` is taken from it as MADV_DONTNEED does."""
    running = start(sys.executable, "-c", ALLOCATES + FORKS + ENDS)
    child = int(running.line())
    assert stacks(tracer, child) == {64: ["<module>", "allocate"]}
