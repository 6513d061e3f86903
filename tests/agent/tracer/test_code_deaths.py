# SPDX-License-Identifier: Apache-2.0
"""How many code objects a Python has freed, by which stacks are recognised: against the program's own count."""

from collections.abc import Callable
from ctypes import c_uint32

import pytest

from gpuheap.tracer import Tracer, libbpf
from gpuheap.tracer.abi import CodeDeaths
from gpuheap.tracer.code_deaths import VERSIONS
from tests.agent.tracer.conftest import Program
from tests.debian import NotObtainable
from tests.interpreters.found import NAMES, command, version
from tests.waiting import wait_for

pytestmark = pytest.mark.bpf

PROGRAM = """
import ctypes, gc, sys
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)

def frees(number):
    kind = number % 4
    code = compile("def f():\\n def g(): yield\\n return g", "freed", "exec")
    if kind == 0:
        return 3
    space = {}
    exec(code, space)
    if kind == 1:
        space["f"]()
    elif kind == 2:
        next(space["f"]()())
    else:
        space["own"] = space
        space = None
        gc.collect()
    return 3

gc.disable()
for line in sys.stdin:
    print(sum(frees(number) for number in range(int(line))), flush=True)
"""
"""Each turn makes a module, a function and a generator, and frees their three code objects: from a constant, from a
function, from a generator's frame, by the garbage collector."""


@pytest.fixture(params=[name for name in NAMES if version(name) in VERSIONS])
def python(request: pytest.FixtureRequest) -> tuple[str, ...]:
    try:
        return command(request.param)
    except NotObtainable as reason:
        pytest.skip(f"no CPython {request.param}: {reason}")


def count(tracer: Tracer, pid: int) -> int | None:
    found = libbpf.lookup(tracer._bpf.map_fd("code_deaths"), c_uint32(pid), CodeDeaths)
    return found.count if found else None


def test_every_code_object_that_is_freed_is_counted(
    start: Callable[..., Program], tracer: Tracer, python: tuple[str, ...]
) -> None:
    program = start(*python, "-c", PROGRAM)

    def probed() -> bool:
        tracer.poll(0.02)
        return count(tracer, program.pid) is not None

    program.write("4\n")
    program.line()
    wait_for("the probe", probed)
    before = count(tracer, program.pid)
    program.write("400\n")
    freed = int(program.line())
    after = count(tracer, program.pid)
    assert before is not None and after is not None
    assert freed == 1200
    assert after - before == freed


def test_a_count_ends_with_its_process(
    start: Callable[..., Program], tracer: Tracer, python: tuple[str, ...]
) -> None:
    program = start(*python, "-c", PROGRAM)
    program.write("4\n")
    program.line()
    tracer.poll(0)
    assert count(tracer, program.pid) is not None
    assert program.end() == 0
    assert count(tracer, program.pid) is None
    tracer.poll(0)
    assert not tracer._code_deaths._links
