# SPDX-License-Identifier: Apache-2.0
"""Probes are set in three ways, by what the kernel can do: the answers are the same, and no trace stays.

Each way is used once for all tests: without uprobe_multi, kernels take long to remove the probes.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuheap.heap.model import Reading
from gpuheap.tracer import Tracer, TracerOptions
from gpuheap.tracer.kernel import Kernel
from tests.agent.tracer.conftest import Program, of
from tests.agent.tracer.played import Played, in_use
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.bpf

INT3 = b"\xcc"
"""What a probe writes in the place of a function's first byte."""

STACKS = PRELUDE + "def outer(): inner()\ndef inner(): allocate(700)\nsay('ready'); outer(); say('done')"
CALLING = (
    PRELUDE
    + """
import threading
names = ("cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuCtxSetCurrent")
say(" ".join(str(ctypes.cast(getattr(driver, name), ctypes.c_void_p).value) for name in names))
ends = threading.Event()
def call():
    driver.cuCtxSetCurrent(context)
    while not ends.is_set():
        assert free(allocate(5)) == 0
threads = [threading.Thread(target=call, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
say("calling")
ends.set()
for thread in threads:
    thread.join()
say("done")
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`probed` and `after` are the first bytes of functions in a program's memory, during tracing and after it."""

    reading: Reading
    played: int
    """The pid of the program that `play_all` was done by."""
    stacks: list[list[str]]
    probed: list[bytes]
    after: list[bytes]
    untouched: list[bytes]
    exit_code: int
    """Of a program that was in the middle of calls when the tracer was closed."""


@pytest.fixture(scope="module", params=["uprobe_multi", "perf events", "no cookies"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """What the tracer takes the running kernel for."""
    running = Kernel.running()
    if request.param == "uprobe_multi" and not running.uprobe_multi:
        pytest.skip(f"kernel {running.release} has no uprobe_multi")
    return Kernel(
        release=running.release,
        cookies=request.param != "no cookies" and running.cookies,
        uprobe_multi=request.param == "uprobe_multi",
    )


@pytest.fixture(scope="module")
def seen(kernel: Kernel, standin: StandIn) -> Iterator[Seen]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "running", lambda: kernel)
        patch.setenv("LD_LIBRARY_PATH", str(standin.folder))
        with Tracer(TracerOptions(native_stacks=False)) as tracer, Played(tracer, standin) as play:
            play_all(play)
            program = Program(tracer, [sys.executable, "-c", STACKS], standin)
            program.line()
            tracer.poll(0)
            program.go_on()
            program.line()
            reading = tracer.read()
            program.end()
            calling = Program(tracer, [sys.executable, "-c", CALLING], standin)
            places = [int(word) for word in calling.line().split()]
            probed = first_bytes(calling, places)
            calling.go_on()
            assert calling.line() == "calling"
    after = probed
    deadline = time.monotonic() + DEADLINE_SECONDS
    while INT3 in after and time.monotonic() < deadline:  # each removal waits for the kernel
        time.sleep(0.05)
        after = first_bytes(calling, places)
    calling.tracer = None
    calling.go_on()
    assert calling.line() == "done"
    untouched = Program(None, [sys.executable, "-c", CALLING], standin)
    yield Seen(
        reading=reading,
        played=play.pid,
        stacks=[[frame.function for frame in site.stack] for site in of(reading, program.pid)],
        probed=probed,
        after=after,
        untouched=first_bytes(untouched, [int(word) for word in untouched.line().split()]),
        exit_code=calling.end(),
    )
    untouched.kill()


def play_all(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuMemAlloc_v2 r11 30", "0 cuMemFree_v2 r10")
    play.do("0 cuMemAllocPitch_v2 r12 r13 513 3 4", "0 cuMemAllocManaged r14 40 1")
    play.do("0 cuMemAllocHost_v2 r15 50", "0 cuArrayCreate_v2 r16 10 0 0x20 4")
    play.do("1 cuCtxCreate_v2 r2 0 1", "1 cuMemAlloc_v2 r17 60", "1 cuMemAllocAsync r18 70")
    play.do("0 cuMemCreate r19 2097152 1 1 0", "0 cuMemPoolCreate r20 1 0")
    play.do("0 cuMemAllocFromPoolAsync r21 80 r20", "1 cuCtxDestroy_v2 r2")
    assert play.codes("0 cuMemAlloc_v2 r22 0", "0 standin_refuse_frees 1") == [1, 0]
    assert play.codes("0 cuMemFree_v2 r11", "0 cuMemFree_v2 0xdead000") == [719, 1]


def first_bytes(program: Program, places: list[int]) -> list[bytes]:
    with Path(f"/proc/{program.pid}/mem").open("rb", buffering=0) as memory:
        return [os.pread(memory.fileno(), 1, place) for place in places]


def test_every_way_to_set_probes_gives_the_same_figures(seen: Seen) -> None:
    assert in_use(seen.reading, seen.played) == {
        ("device", "0"): (30 + 1024 * 3 + 80, 3),
        ("device", "1"): (70 + 2097152, 2),
        ("managed", "0"): (40, 1),
        ("pinned_host", "host"): (50, 1),
        ("array", "0"): (160, 1),
    }
    failed = {code: n for (process, code), n in seen.reading.failures.items() if process.pid == seen.played}
    assert failed == {1: 1}


def test_every_way_to_set_probes_sees_the_python_stack(seen: Seen) -> None:
    assert seen.stacks == [["<module>", "outer", "inner", "allocate"]]


def test_a_closed_tracer_leaves_no_probe_behind(seen: Seen) -> None:
    assert set(seen.probed) == {INT3}, "the test is about functions that have had probes"
    assert INT3 not in seen.untouched
    assert seen.after == seen.untouched


def test_a_tracer_that_is_closed_in_the_middle_of_calls_harms_nobody(seen: Seen) -> None:
    assert seen.exit_code == 0
