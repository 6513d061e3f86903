# SPDX-License-Identifier: Apache-2.0
"""Bytes and objects, against the ledger that the driver itself keeps."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

PRELUDE = """
import ctypes, os, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
def allocate(size):
    address = ctypes.c_uint64()
    code = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return code or address.value
def free(address):
    return driver.cuMemFree_v2(ctypes.c_uint64(address))
def say(text):
    print(text, flush=True)
    sys.stdin.readline()
"""


def python(start: Callable[..., Program], body: str) -> Program:
    return start(sys.executable, "-c", PRELUDE + body)


def test_threads_that_free_what_others_allocated_are_exact_to_the_byte(
    start: Callable[..., Program],
    tracer: Tracer,
    losses: Callable[[], dict[str, int]],
    standin: StandIn,
) -> None:
    program = start(standin.threads, "4", "5000")
    ledger = [int(number) for number in program.line().split()]
    allocated_bytes, allocated_objects, freed_bytes, freed_objects, failed, _unknown = ledger
    reading = tracer.read()
    seen = total(of(reading, program.pid))
    assert (seen.allocated_bytes, seen.allocated_objects) == (allocated_bytes, allocated_objects)
    assert (seen.freed_bytes, seen.freed_objects) == (freed_bytes, freed_objects)
    failures = {code: n for (process, code), n in reading.failures.items() if process.pid == program.pid}
    assert failures == {2: failed}, "CUDA_ERROR_OUT_OF_MEMORY is 2, and a failed call is no allocation"
    assert "unknown_free" not in losses(), "a free that the driver refused is not a free"
    assert len({site.thread_id for site in of(reading, program.pid)}) == 4


def test_the_end_of_a_process_releases_what_it_held(start: Callable[..., Program], tracer: Tracer) -> None:
    program = python(start, "a = allocate(1000); b = allocate(500); free(b); say('ready')")
    program.line()
    assert total(of(tracer.read(), program.pid)).in_use_bytes == 1000
    program.end()
    reading = tracer.read()
    after = total(of(reading, program.pid))
    assert (after.in_use_bytes, after.in_use_objects) == (0, 0)
    assert (after.released_at_exit_bytes, after.released_at_exit_objects) == (1000, 1)
    assert [process.pid for process in reading.exited] == [program.pid]


def test_a_killed_process_releases_what_it_held_once(
    start: Callable[..., Program], tracer: Tracer, standin: StandIn
) -> None:
    program = start(standin.threads, "4", "500")
    program.line()
    held = total(of(tracer.read(), program.pid)).in_use_bytes
    assert held > 0, "the program leaves some allocations behind"
    program.kill()
    after = total(of(tracer.read(), program.pid))
    assert (after.in_use_bytes, after.in_use_objects, after.released_at_exit_bytes) == (0, 0, held)
    assert total(of(tracer.read(), program.pid)) == after, "a second reading must not release it again"


def test_what_is_forgotten_is_in_no_later_reading(start: Callable[..., Program], tracer: Tracer) -> None:
    gone, there = (python(start, "allocate(10); say('ready')") for _ in range(2))
    gone.line(), there.line()
    gone.end()
    tracer.forget(tracer.read().exited)
    reading = tracer.read()
    assert of(reading, gone.pid) == {}
    assert total(of(reading, there.pid)).in_use_bytes == 10
    assert reading.exited == frozenset()


def test_a_free_that_the_driver_refuses_is_put_back(start: Callable[..., Program], tracer: Tracer) -> None:
    program = python(
        start,
        "a = allocate(700); driver.standin_refuse_frees(1); assert free(a) == 719; say(1); free(a); say(2)",
    )
    program.line()
    assert total(of(tracer.read(), program.pid)).in_use_bytes == 700
    program.go_on()
    program.line()
    after = total(of(tracer.read(), program.pid))
    assert (after.in_use_bytes, after.freed_bytes, after.freed_objects) == (0, 700, 1)


def test_a_free_of_the_null_address_and_of_an_unknown_one_changes_nothing(
    start: Callable[..., Program], tracer: Tracer, losses: Callable[[], dict[str, int]]
) -> None:
    program = python(start, "allocate(9); assert free(0) == 0; assert free(0xdead000) == 1; say('ready')")
    program.line()
    assert total(of(tracer.read(), program.pid)).freed_objects == 0
    assert "unknown_free" not in losses()


def test_a_free_of_memory_from_before_tracing_is_counted_as_unknown(standin: StandIn) -> None:
    program = Program(
        None, [sys.executable, "-c", PRELUDE + "a = allocate(9); say(1); free(a); say(2)"], standin
    )
    program.line()
    with Tracer() as tracer:
        program.tracer = tracer
        program.go_on()
        program.line()
        reading = tracer.read()
        assert reading.losses["unknown_free"] == 1
        assert of(reading, program.pid) == {}
        program.end()


def test_a_forked_child_owns_nothing_and_its_end_frees_nothing(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    program = python(
        start,
        "allocate(100)\n"
        "child = os.fork()\n"
        "if not child: allocate(7); os._exit(0)\n"
        "os.waitpid(child, 0); say(child)",
    )
    child = int(program.line())
    reading = tracer.read()
    assert total(of(reading, program.pid)).in_use_bytes == 100
    assert total(of(reading, child)).released_at_exit_bytes == 7


def test_exec_ends_the_old_image_and_the_new_one_starts_with_nothing(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    again = PRELUDE + "allocate(3); say('new')"
    program = python(start, f"allocate(50); os.execv(sys.executable, [sys.executable, '-c', {again!r}])")
    assert program.line() == "new"
    images = {site.process: totals for site, totals in of(tracer.read(), program.pid).items()}
    by_generation = {process.generation: totals for process, totals in images.items()}
    assert by_generation[0].released_at_exit_bytes == 50
    assert by_generation[1].in_use_bytes == 3


def test_two_processes_with_the_same_stacks_stay_apart(start: Callable[..., Program], tracer: Tracer) -> None:
    programs = [python(start, f"allocate({size}); say('ready')") for size in (11, 22)]
    for program in programs:
        program.line()
    reading = tracer.read()
    assert [total(of(reading, program.pid)).in_use_bytes for program in programs] == [11, 22]


def test_a_driver_that_is_first_mapped_while_tracing_is_probed(
    start: Callable[..., Program], tracer: Tracer, standin: StandIn, tmp_path: Path
) -> None:
    copy = tmp_path / "libcuda.so.1"
    copy.write_bytes(standin.library.read_bytes())
    body = f"""
say("about to load")
other = ctypes.CDLL({str(copy)!r})
say("loaded")
other.cuInit(0)
address = ctypes.c_uint64()
other.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(123))
say("ready")
"""
    program = python(start, body)
    program.line()
    program.go_on()
    program.line()
    tracer.poll(0)
    program.go_on()
    program.line()
    assert total(of(tracer.read(), program.pid)).in_use_bytes == 123


def test_readings_of_chosen_processes_hold_them_and_what_they_start(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuheap.tracer import TracerOptions

    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    child = "import subprocess; subprocess.run([sys.executable, '-c', sys.argv[1]], stdin=subprocess.DEVNULL)"
    grandchild = PRELUDE + "allocate(5)"
    chosen = Program(None, [sys.executable, "-c", PRELUDE + f"say(1); {child}; say(2)", grandchild], standin)
    other = Program(None, [sys.executable, "-c", PRELUDE + "say(1); allocate(6); say(2)"], standin)
    chosen.line(), other.line()
    with Tracer(TracerOptions(pids=frozenset({chosen.pid}))) as tracer:
        chosen.tracer = other.tracer = tracer
        for program in (chosen, other):
            program.go_on()
            program.line()
        assert [totals.allocated_bytes for totals in tracer.read().totals.values()] == [5]
    chosen.end(), other.end()
