# SPDX-License-Identifier: Apache-2.0
"""Failed calls by code, and what was held at the moment of an out-of-memory failure. Counted by hand."""

import sys
from collections.abc import Iterator

import pytest

from gpuheap.heap.model import Holding, OutOfMemory, Reading
from gpuheap.tracer import Tracer, TracerOptions
from tests.agent.tracer.conftest import Program
from tests.agent.tracer.played import Played
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

TOO_MUCH = 1 << 45
HOLDERS = (
    PRELUDE
    + f"""
def keep(size):
    return allocate(size)
def keep_more(size):
    return allocate(size)
def hungry():
    assert allocate({TOO_MUCH}) == 2
one, two, three = keep(700), keep(30), keep_more(4)
free(keep(99))
"""
)
HELD = {"keep": (730, 2), "keep_more": (4, 1)}
FREE_ALL = "free(one); free(two); free(three)\n"


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin, STANDIN_CUDA_MIB="4") as played:
        yield played


def failures(reading: Reading, pid: int) -> tuple[OutOfMemory, ...]:
    return tuple(one for one in reading.out_of_memory if one.site.process.pid == pid)


def held(failure: OutOfMemory) -> dict[str, tuple[int, int]]:
    """By the function that allocates in the end."""
    sums: dict[str, tuple[int, int]] = {}
    for site, holding in failure.holdings.items():
        name = next((f.function for f in reversed(site.stack) if f.function not in ("allocate", "say")), "")
        size, objects = sums.get(name, (0, 0))
        sums[name] = (size + holding.bytes, objects + holding.objects)
    return sums


def unwatched(standin: StandIn, body: str) -> Program:
    """A program that goes on to its last line without the tracer being polled."""
    return Program(None, [sys.executable, "-c", HOLDERS + body], standin)


def test_failed_calls_are_counted_by_their_code_and_are_no_allocations(play: Played, tracer: Tracer) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 standin_fail_next 999 2")
    assert play.codes("0 cuMemAllocManaged r11 5 1", "0 cuMemAllocHost_v2 r11 5") == [999, 999]
    assert play.codes("0 cuMemAlloc_v2 r11 0", f"0 cuMemAlloc_v2 r11 {TOO_MUCH}") == [1, 2]
    assert play.codes("0 cuMemCreate r11 2097152 9 0 0", "0 cuMemFree_v2 0xdead000") == [1, 1]
    counted = {code: n for (process, code), n in tracer.read().failures.items() if process.pid == play.pid}
    assert counted == {999: 2, 1: 2, 2: 1}, "a free that fails is no failed allocation"
    assert play.in_use() == {("device", "0"): (700, 1)}


@pytest.mark.parametrize(
    ("line", "asked", "kind", "device"),
    [
        ("0 cuMemAlloc_v2 r10 5000000", 5000000, "device", "0"),
        ("0 cuMemAllocPitch_v2 r10 r11 500 10000 4", 5000000, "device", "0"),
        ("0 cuMemAllocManaged r10 5000000 1", 5000000, "managed", "0"),
        ("0 cuMemAllocAsync r10 5000000", 5000000, "device", "0"),
        ("0 cuMemAllocFromPoolAsync r10 5000000 r20", 5000000, "device", "1"),
        (f"0 cuMemCreate r10 {6 << 20} 1 1 0", 6 << 20, "device", "1"),
        ("0 cuArrayCreate_v2 r10 1000 1000 0x20 2", 1000 * 1000 * 4 * 2, "array", "0"),
        ("0 cuMemAllocHost_v2 r10 5000000", 5000000, "pinned_host", "host"),
    ],
)
def test_an_out_of_memory_failure_keeps_what_was_asked_for(
    play: Played, tracer: Tracer, line: str, asked: int, kind: str, device: str
) -> None:
    play.do("0 cuMemAlloc_v2 r30 11", "0 cuMemPoolCreate r20 1 1", "0 standin_fail_next 2 1")
    assert play.codes(line) == [2]
    (failure,) = failures(tracer.read(), play.pid)
    assert (failure.asked_bytes, failure.site.kind.value, failure.site.device.text) == (asked, kind, device)
    assert failure.site.call == line.split()[1]
    assert (list(failure.holdings.values()), failure.exact) == ([Holding(bytes=11, objects=1)], True)


def test_other_failures_are_no_out_of_memory_failures(play: Played, tracer: Tracer) -> None:
    play.do("0 standin_fail_next 999 1")
    assert play.codes("0 cuMemAlloc_v2 r10 700", "0 cuMemAlloc_v2 r10 0") == [999, 1]
    assert failures(tracer.read(), play.pid) == ()


def test_the_holdings_are_those_of_the_moment_though_all_is_freed_right_after(
    tracer: Tracer, standin: StandIn
) -> None:
    program = unwatched(standin, "hungry()\n" + FREE_ALL + "say('freed')")
    program.line()
    (failure,) = failures(tracer.read(), program.pid)
    program.end()
    assert [frame.function for frame in failure.site.stack] == ["<module>", "hungry", "allocate"]
    assert (failure.asked_bytes, failure.site.kind.value, failure.site.device.text) == (
        TOO_MUCH,
        "device",
        "0",
    )
    assert (held(failure), failure.exact) == (HELD, True)


def test_the_holdings_are_those_of_the_moment_though_the_process_is_killed_right_after(
    tracer: Tracer, standin: StandIn
) -> None:
    program = unwatched(standin, "hungry(); free(one); os.kill(os.getpid(), 9)")
    assert program.end() == -9
    for _ in range(2):
        (failure,) = failures(tracer.read(), program.pid)
        assert (held(failure), failure.exact) == (HELD, True)


def test_of_two_failures_in_a_row_the_earlier_is_right_or_marked(tracer: Tracer, standin: StandIn) -> None:
    blurred = tracer.read().losses["oom_blurred"]
    program = unwatched(standin, "hungry(); free(one); four = keep_more(5); hungry(); free(two); say('done')")
    program.line()
    reading = tracer.read()
    program.end()
    first, second = failures(reading, program.pid)
    assert (held(second), second.exact) == ({"keep": (30, 1), "keep_more": (9, 2)}, True)
    assert held(first) == HELD or not first.exact
    assert first.exact or reading.losses["oom_blurred"] > blurred


def test_two_failures_without_a_change_between_are_both_exact(tracer: Tracer, standin: StandIn) -> None:
    program = unwatched(standin, "hungry(); hungry(); say('done')")
    program.line()
    found = failures(tracer.read(), program.pid)
    program.end()
    assert [(held(failure), failure.exact) for failure in found] == [(HELD, True), (HELD, True)]


def test_holdings_are_those_of_the_process_that_failed(tracer: Tracer, standin: StandIn) -> None:
    quiet, hungry = unwatched(standin, "say('ready')"), unwatched(standin, "free(one); hungry(); say('done')")
    quiet.line(), hungry.line()
    reading = tracer.read()
    quiet.end(), hungry.end()
    (failure,) = failures(reading, hungry.pid)
    assert held(failure) == {"keep": (30, 1), "keep_more": (4, 1)}
    assert failures(reading, quiet.pid) == ()


def test_what_has_gone_with_its_context_is_not_held_at_a_later_failure(play: Played, tracer: Tracer) -> None:
    play.tracer = None
    play.do("0 cuMemAlloc_v2 r9 11", "0 cuCtxCreate_v2 r2 0 0", "0 cuMemAlloc_v2 r10 700")
    play.do("0 cuCtxDestroy_v2 r2")
    assert play.codes("0 cuMemAlloc_v2 r11 5000000") == [2]
    (failure,) = failures(tracer.read(), play.pid)
    assert [(one.bytes, one.objects) for one in failure.holdings.values()] == [(11, 1)] or not failure.exact


def test_what_goes_with_its_context_after_a_failure_was_held(play: Played, tracer: Tracer) -> None:
    play.tracer = None
    play.do("0 cuCtxCreate_v2 r2 0 0", "0 cuMemAlloc_v2 r10 700")
    assert play.codes("0 cuMemAlloc_v2 r11 5000000") == [2]
    play.do("0 cuCtxDestroy_v2 r2")
    (failure,) = failures(tracer.read(), play.pid)
    assert [(one.bytes, one.objects) for one in failure.holdings.values()] == [(700, 1)] or not failure.exact


def test_what_is_beyond_the_kernels_table_is_held_too(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    with Tracer(TracerOptions(live_allocations=4, native_stacks=False)) as tracer:
        program = unwatched(standin, "hungry()\n" + FREE_ALL + "say('freed')")
        program.line()
        (failure,) = failures(tracer.read(), program.pid)
        program.end()
    assert held(failure) == HELD or not failure.exact
