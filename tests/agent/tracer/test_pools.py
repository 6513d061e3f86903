# SPDX-License-Identifier: Apache-2.0
"""Stream-ordered memory: what is in use, and what a pool keeps beyond it. Counted by hand."""

from collections.abc import Iterator

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.played import Played, freed
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

DEVICE = ("device", "0")
OWN = "0 cuMemPoolCreate r20 1 0"
THRESHOLD, RESERVED = 4, 5  # CUmemPool_attribute
KEEP_ALL = f"0 cuMemPoolSetAttribute r20 {THRESHOLD} {2**64 - 1}"
ONE, OTHER = "0 cuMemAllocFromPoolAsync r10 1000 r20", "0 cuMemAllocFromPoolAsync r11 500 r20"
FREE_ONE, FREE_OTHER = "0 cuMemFreeAsync r10", "0 cuMemFreeAsync r11"


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin) as played:
        yield played


def pools(tracer: Tracer, play: Played) -> dict[tuple[int, str], tuple[int, int]]:
    """In use and retained, by address and device."""
    return {
        (pool.address, pool.device.text): (sums.in_use_bytes, sums.retained_bytes)
        for pool, sums in tracer.read().pools.items()
        if pool.process.pid == play.pid
    }


@pytest.mark.parametrize(
    ("lines", "in_use", "retained"),
    [
        ([ONE, OTHER], 1500, 0),
        ([ONE, OTHER, FREE_ONE], 500, 0),  # the threshold is 0 at first
        ([KEEP_ALL, ONE, OTHER, FREE_ONE], 500, 1000),
        ([KEEP_ALL, ONE, OTHER, FREE_ONE, FREE_OTHER], 0, 1500),
        ([KEEP_ALL, ONE, FREE_ONE, OTHER], 500, 500),  # taken from what the pool had kept
        ([KEEP_ALL, ONE, FREE_ONE, OTHER, FREE_OTHER], 0, 1000),
        ([KEEP_ALL, ONE, OTHER, FREE_ONE, "0 cuMemPoolTrimTo r20 800"], 500, 300),
        ([KEEP_ALL, ONE, OTHER, FREE_ONE, "0 cuMemPoolTrimTo r20 100"], 500, 0),
        ([KEEP_ALL, ONE, OTHER, FREE_ONE, "0 cuMemPoolTrimTo r20 5000"], 500, 1000),
        ([KEEP_ALL, ONE, FREE_ONE, "0 cuMemPoolTrimTo r20 0", OTHER, FREE_OTHER], 0, 500),
        ([f"0 cuMemPoolSetAttribute r20 {THRESHOLD} 1200", ONE, OTHER, FREE_ONE, FREE_OTHER], 0, 1200),
        ([f"0 cuMemPoolSetAttribute r20 {THRESHOLD} 1200", ONE, OTHER, FREE_ONE], 500, 700),
        ([f"0 cuMemPoolSetAttribute r20 {THRESHOLD} 1200", ONE, FREE_ONE], 0, 1000),
    ],
)
def test_a_pool_keeps_its_highest_use_up_to_its_threshold(
    play: Played, tracer: Tracer, lines: list[str], in_use: int, retained: int
) -> None:
    play.do(OWN, *lines)
    assert pools(tracer, play) == {(play.value("r20"), "0"): (in_use, retained)}


def test_what_the_driver_says_of_a_pools_reserve_corrects_the_figure(play: Played, tracer: Tracer) -> None:
    play.do(
        OWN, ONE, FREE_ONE, "0 cuStreamSynchronize", KEEP_ALL, f"0 cuMemPoolGetAttribute r20 {RESERVED} r30"
    )
    assert play.value("r30") == 0
    assert pools(tracer, play) == {(play.value("r20"), "0"): (0, 0)}


def test_a_destroyed_pool_keeps_nothing_and_its_allocations_live_on(play: Played, tracer: Tracer) -> None:
    play.do(OWN, KEEP_ALL, ONE, OTHER, FREE_ONE, "0 cuMemPoolDestroy r20")
    assert pools(tracer, play) == {}
    assert play.in_use() == {DEVICE: (500, 1)}
    play.do(FREE_OTHER)
    assert play.in_use() == {}
    assert pools(tracer, play) == {}


def test_memory_without_a_named_pool_is_of_the_default_pool_of_the_current_device(
    play: Played, tracer: Tracer
) -> None:
    play.do("0 cuMemAllocAsync r10 700", "1 cuDevicePrimaryCtxRetain r2 1", "1 cuCtxSetCurrent r2")
    play.do("1 cuMemAllocAsync_ptsz r11 30", "0 cuMemAllocAsync_ptsz r12 4")
    assert pools(tracer, play) == {(0, "0"): (704, 0), (0, "1"): (30, 0)}
    assert play.in_use() == {DEVICE: (704, 2), ("device", "1"): (30, 1)}


def test_the_default_pool_is_the_same_by_its_handle(play: Played, tracer: Tracer) -> None:
    play.do("0 cuDeviceGetDefaultMemPool r20 0", KEEP_ALL, "0 cuMemAllocAsync r12 700", ONE, FREE_ONE)
    assert pools(tracer, play) == {(0, "0"): (700, 1000)}


def test_the_pool_that_a_program_sets_is_the_one_that_is_taken_from(play: Played, tracer: Tracer) -> None:
    play.do(OWN, "0 cuDeviceSetMemPool 0 r20", "0 cuMemAllocAsync r10 700")
    assert pools(tracer, play) == {(play.value("r20"), "0"): (700, 0)}


def test_when_the_pool_that_was_set_is_destroyed_the_default_one_is_taken_from(
    play: Played, tracer: Tracer
) -> None:
    """cuMemPoolDestroy: "destroying the current mempool of a device sets the default mempool [...] as the current"."""
    play.do(OWN, "0 cuDeviceSetMemPool 0 r20", "0 cuMemPoolDestroy r20", "0 cuMemAllocAsync r10 700")
    assert pools(tracer, play) == {(0, "0"): (700, 0)}


def test_a_pool_is_on_its_own_device_not_on_the_current_one(play: Played, tracer: Tracer) -> None:
    play.do("0 cuMemPoolCreate r20 1 1", "0 cuMemAllocFromPoolAsync_ptsz r10 1000 r20")
    assert pools(tracer, play) == {(play.value("r20"), "1"): (1000, 0)}
    assert play.in_use() == {("device", "1"): (1000, 1)}


@pytest.mark.parametrize("call", ["cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFree_v2"])
def test_every_call_that_frees_gives_the_pool_its_memory_back(
    play: Played, tracer: Tracer, call: str
) -> None:
    play.do(OWN, KEEP_ALL, ONE, OTHER, f"0 {call} r10")
    assert pools(tracer, play) == {(play.value("r20"), "0"): (500, 1000)}
    assert freed(tracer.read(), play.pid) == (1000, 1)


def test_a_free_that_the_driver_refuses_leaves_the_pool_as_it_was(play: Played, tracer: Tracer) -> None:
    play.do(OWN, KEEP_ALL, ONE, OTHER)
    assert play.codes("0 standin_refuse_frees 1", FREE_ONE) == [0, 719]
    assert pools(tracer, play) == {(play.value("r20"), "0"): (1500, 0)}


def test_the_pools_of_an_ended_process_are_gone(play: Played, tracer: Tracer) -> None:
    play.do(OWN, KEEP_ALL, ONE, OTHER, FREE_ONE)
    play.kill()
    assert pools(tracer, play) == {}
    assert play.in_use() == {}
