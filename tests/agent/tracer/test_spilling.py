# SPDX-License-Identifier: Apache-2.0
"""A process that has more allocations than its share of the kernel's table: every figure stays exact. By hand."""

import sys
from collections.abc import Iterator

import pytest

from gpuheap.heap.model import Totals
from gpuheap.tracer import Tracer, TracerOptions
from tests.agent.tracer.conftest import Program, of, total
from tests.agent.tracer.played import Played, in_use
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

TABLE = 64
"""One process can have a fourth of it."""

COUNT = 5000
ALL = COUNT * (COUNT + 1) // 2
MANY = PRELUDE + f"addresses = [allocate(1 + at) for at in range({COUNT})]; say('allocated')\n"
FREE_EVEN = "assert not any(free(address) for address in addresses[1::2]); say('freed')\n"  # 2, 4, ... bytes
EVEN = 2 * (COUNT // 2) * (COUNT // 2 + 1) // 2
FEW = PRELUDE + "a = allocate(700); b = allocate(30); free(a); say('allocated')"
DEVICE = ("device", "0")


@pytest.fixture
def narrow(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    with Tracer(TracerOptions(live_allocations=TABLE)) as tracer:
        yield tracer


@pytest.fixture
def play(narrow: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(narrow, standin) as played:
        yield played


def sums(tracer: Tracer, program: Program) -> Totals:
    return total(of(tracer.read(), program.pid))


def test_five_thousand_allocations_in_a_table_of_64_are_exact_and_no_other_process_is_worse_off(
    narrow: Tracer, standin: StandIn
) -> None:
    many, few = (Program(narrow, [sys.executable, "-c", text], standin) for text in (MANY + FREE_EVEN, FEW))
    many.line(), few.line()
    reading = narrow.read()
    assert in_use(reading, many.pid) == {DEVICE: (ALL, COUNT)}
    assert total(of(reading, few.pid)) == Totals(
        allocated_bytes=730, allocated_objects=2, freed_bytes=700, freed_objects=1
    )
    many.go_on()
    many.line()
    reading = narrow.read()
    assert in_use(reading, many.pid) == {DEVICE: (ALL - EVEN, COUNT // 2)}
    assert in_use(reading, few.pid) == {DEVICE: (30, 1)}
    assert (reading.losses["spill_full"], reading.losses["live_full"]) == (0, 0)
    for program in (many, few):
        program.kill()


def test_a_killed_process_releases_what_is_in_the_table_and_what_is_not_once(
    narrow: Tracer, standin: StandIn
) -> None:
    program = Program(narrow, [sys.executable, "-c", MANY + FREE_EVEN], standin)
    program.line()
    program.go_on()
    program.line()
    program.kill()
    expected = Totals(
        allocated_bytes=ALL,
        allocated_objects=COUNT,
        freed_bytes=ALL,
        freed_objects=COUNT,
        released_at_exit_bytes=ALL - EVEN,
        released_at_exit_objects=COUNT // 2,
    )
    assert sums(narrow, program) == expected
    assert sums(narrow, program) == expected, "a second reading does not release it again"


def test_a_process_that_is_killed_before_the_tracer_looks_has_held_what_it_held(
    narrow: Tracer, standin: StandIn
) -> None:
    program = Program(None, [sys.executable, "-c", MANY], standin)
    program.line()
    program.kill()
    after = sums(narrow, program)
    assert (after.in_use_bytes, after.in_use_objects) == (0, 0)
    assert (after.released_at_exit_bytes, after.released_at_exit_objects) == (ALL, COUNT)


def test_a_refused_free_of_what_is_not_in_the_table_is_put_back(play: Played) -> None:
    play.do(*(f"0 cuMemAlloc_v2 r{at} {at}" for at in range(10, 110)))  # 10 + ... + 109 = 5950
    for at in range(10, 110):
        assert play.codes("0 standin_refuse_frees 1", f"0 cuMemFree_v2 r{at}") == [0, 719]
    assert play.in_use() == {DEVICE: (5950, 100)}
    play.do(*(f"0 cuMemFree_v2 r{at}" for at in range(10, 109)))
    assert play.in_use() == {DEVICE: (109, 1)}


def test_what_goes_with_a_context_goes_with_it_also_beyond_the_table(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r9 700", "0 cuCtxCreate_v2 r2 0 0")
    play.do(*(f"0 cuMemAlloc_v2 r{at} {at}" for at in range(10, 110)), "0 cuCtxDestroy_v2 r2")
    assert play.in_use() == {DEVICE: (700, 1)}


def test_a_double_free_beyond_the_table_changes_nothing(play: Played) -> None:
    play.do(*(f"0 cuMemAlloc_v2 r{at} {at}" for at in range(10, 110)), "0 cuMemFree_v2 r100")
    assert play.codes("0 cuMemFree_v2 r100") == [1]
    assert play.in_use() == {DEVICE: (5850, 99)}


def test_what_a_context_has_in_the_table_makes_room_for_others_when_it_ends(
    play: Played, narrow: Tracer
) -> None:
    before = 0
    for _ in range(20):
        play.do("0 cuCtxCreate_v2 r2 0 0", *(f"0 cuMemAlloc_v2 r{at} 1" for at in range(10, 26)))
        before += 16
        play.do("0 cuCtxDestroy_v2 r2")
        assert play.in_use() == {}
    after = sums(narrow, play)
    assert (after.freed_bytes, after.freed_objects) == (before, before)
