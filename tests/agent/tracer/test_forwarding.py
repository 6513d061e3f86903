# SPDX-License-Identifier: Apache-2.0
"""A library that stands before the driver, under its name, and passes calls on: what a program does counts once."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuheap.heap.model import Totals
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

FORWARDER = """
#include <dlfcn.h>
#include <stdlib.h>
#include <stddef.h>
static void *real(const char *name)
{
    static void *driver;
    if (!driver)
        driver = dlopen(getenv("FORWARD_TO"), RTLD_NOW);
    return dlsym(driver, name);
}
#define CALL(name, parameters, ...) int name parameters { return ((int (*) parameters)real(#name))(__VA_ARGS__); }
CALL(cuInit, (unsigned flags), flags)
CALL(cuDevicePrimaryCtxRetain, (void **context, int device), context, device)
CALL(cuCtxSetCurrent, (void *context), context)
CALL(cuMemAlloc_v2, (unsigned long long *address, size_t bytes), address, bytes)
CALL(cuMemFree_v2, (unsigned long long address), address)
CALL(standin_refuse_frees, (int count), count)
"""


@pytest.fixture(params=["-O0", "-O2"])
def forwarder(
    request: pytest.FixtureRequest, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of one that calls the driver (-O0), or that jumps to it (-O2)."""
    library = tmp_path / "libcuda.so.1"
    flags = [request.param, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(
        ["gcc", *flags, "-x", "c", "-", "-o", library, "-ldl"], input=FORWARDER, text=True, check=True
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{standin.folder}")
    monkeypatch.setenv("FORWARD_TO", str(standin.library))
    return tmp_path


@pytest.fixture
def watching(forwarder: Path) -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


@pytest.fixture
def program(watching: Tracer, forwarder: Path, standin: StandIn) -> Iterator[Program]:
    body = """
kept, gone = allocate(700), allocate(30)
assert free(gone) == 0
assert allocate(1 << 45) == 2
assert free(0xdead000) == 1
driver.standin_refuse_frees(1)
assert free(kept) == 719
say("ready")
free(kept)
say("done")
"""
    in_front = StandIn(folder=forwarder, threads=standin.threads, play=standin.play)
    started = Program(watching, [sys.executable, "-c", PRELUDE + body], in_front)
    yield started
    started.kill()


def test_a_call_that_is_passed_on_counts_once(watching: Tracer, program: Program) -> None:
    before = watching.read().losses
    assert program.line() == "ready"
    reading = watching.read()
    assert total(of(reading, program.pid)) == Totals(
        allocated_bytes=730, allocated_objects=2, freed_bytes=30, freed_objects=1
    )
    failed = {code: n for (process, code), n in reading.failures.items() if process.pid == program.pid}
    assert failed == {2: 1}
    program.go_on()
    assert program.line() == "done"
    reading = watching.read()
    assert total(of(reading, program.pid)).in_use_bytes == 0
    for reason in ("unmatched_return", "address_reused", "pending_full"):
        assert reading.losses[reason] == before[reason], f"nothing was lost, but {reason} has counted"
