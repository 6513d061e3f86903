# SPDX-License-Identifier: Apache-2.0
"""Which Python frames one run of the interpreter's evaluation function executed.

Expected: from 3.11 on, a Python function that is called by Python runs in its caller's run; one that is called by C
(here by `map`, or as a callback of `sorted`) begins another.
"""

import sys
from collections.abc import Callable
from ctypes import c_uint64

import pytest

from gpuheap.tracer import Tracer, libbpf
from gpuheap.tracer.abi import FrameFlag, Stack
from tests.agent.tracer.conftest import Program

pytestmark = pytest.mark.bpf

PROGRAM = """\
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)


def allocate():
    driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 64)


def by_c(_):
    allocate()


def key(_):
    list(map(by_c, [1]))


def main():
    sorted([1], key=key)


main()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 each Python frame has a run of its own")
def test_each_run_of_the_evaluation_function_ends_with_a_flag(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    program = start(sys.executable, "-c", PROGRAM)
    assert program.line() == "ready"
    stacks = [stack for _, stack in libbpf.items(tracer._bpf.map_fd("stacks"), c_uint64, Stack)]  # type: ignore[type-var]
    assert len(stacks) == 1
    flags = [bool(frame.flags & FrameFlag.OUTERMOST) for frame in stacks[0].frames[: stacks[0].depth]]
    #        allocate, by_c, | key,  | main, <module>
    assert flags == [False, True, True, False, True]
