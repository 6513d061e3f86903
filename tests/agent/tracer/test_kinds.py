# SPDX-License-Identifier: Apache-2.0
"""Each kind of memory is counted for itself: bytes worked out by hand from what the call was given."""

from collections.abc import Iterator

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.played import Played, freed
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

DEVICE, MANAGED, PINNED = ("device", "0"), ("managed", "0"), ("pinned_host", "host")
ARRAY, GRAPH = ("array", "0"), ("graph", "0")
FREE, FREE_HOST, UNREGISTER = "0 cuMemFree_v2 r10", "0 cuMemFreeHost r10", "0 cuMemHostUnregister r10"
DESTROY, DESTROY_MIPMAPPED = "0 cuArrayDestroy r10", "0 cuMipmappedArrayDestroy r10"


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin) as played:
        yield played


@pytest.mark.parametrize(
    ("lines", "key", "size", "free"),
    [
        (["0 cuMemAlloc_v2 r10 700"], DEVICE, 700, FREE),
        (["0 cuMemAlloc r10 700"], DEVICE, 700, "0 cuMemFree r10"),
        (["0 cuMemAllocPitch_v2 r10 r11 1 5 4"], DEVICE, 512 * 5, FREE),
        (["0 cuMemAllocPitch r10 r11 1025 3 4"], DEVICE, 1536 * 3, "0 cuMemFree r10"),
        (["0 cuMemAllocAsync r10 700"], DEVICE, 700, "0 cuMemFreeAsync r10"),
        (["0 cuMemAllocManaged r10 700 1"], MANAGED, 700, FREE),
        (["0 cuMemAllocHost_v2 r10 700"], PINNED, 700, FREE_HOST),
        (["0 cuMemHostAlloc r10 700 0"], PINNED, 700, FREE_HOST),
        (["memory r10 8192", "0 cuMemHostRegister_v2 r10 5000 0"], PINNED, 5000, UNREGISTER),
        (["0 cuArrayCreate_v2 r10 10 0 0x01 1"], ARRAY, 10, DESTROY),
        (["0 cuArrayCreate_v2 r10 10 6 0x0a 2"], ARRAY, 10 * 6 * 4 * 2, DESTROY),
        (["0 cuArrayCreate_v2 r10 10 6 0x10 4"], ARRAY, 10 * 6 * 2 * 4, DESTROY),
        (["0 cuArray3DCreate_v2 r10 10 6 5 0x20 4"], ARRAY, 10 * 6 * 5 * 4 * 4, DESTROY),
        (["0 cuArray3DCreate_v2 r10 10 0 0 0x09 1"], ARRAY, 10 * 2, DESTROY),
        (
            ["0 cuMipmappedArrayCreate r10 8 4 0 0x20 1 3"],
            ARRAY,
            4 * (8 * 4 + 4 * 2 + 2 * 1),
            DESTROY_MIPMAPPED,
        ),
        # More levels than there are down to 1 x 1 are as many as there are: 8 x 4, 4 x 2, 2 x 1, 1 x 1.
        (["0 cuMipmappedArrayCreate r10 8 4 0 0x01 1 9"], ARRAY, 32 + 8 + 2 + 1, DESTROY_MIPMAPPED),
        (["0 cuMipmappedArrayCreate r10 4 4 4 0x01 2 3"], ARRAY, 2 * (64 + 8 + 1), DESTROY_MIPMAPPED),
    ],
)
def test_an_allocation_is_of_one_kind_and_its_free_ends_it(
    play: Played, tracer: Tracer, lines: list[str], key: tuple[str, str], size: int, free: str
) -> None:
    play.do("0 cuMemAlloc_v2 r99 3", *lines)
    beside = {DEVICE: (3, 1)}
    assert play.in_use() == beside | {key: (size, 1) if key != DEVICE else (size + 3, 2)}
    play.do(free)
    assert play.in_use() == beside
    assert freed(tracer.read(), play.pid) == (size, 1)


@pytest.mark.parametrize(
    ("line", "key", "size", "free"),
    [
        ("0 cuMemAllocHost_v2 r10 700", PINNED, 700, "0 cuMemFree_v2 r10"),
        ("0 cuMemAllocHost_v2 r10 700", PINNED, 700, "0 cuMemHostUnregister r10"),
        ("0 cuMemAlloc_v2 r10 700", DEVICE, 700, "0 cuMemFreeHost r10"),
        ("0 cuMemAlloc_v2 r10 700", DEVICE, 700, "0 cuIpcCloseMemHandle r10"),
        ("0 cuArrayCreate_v2 r10 10 0 0x01 1", ARRAY, 10, "0 cuMemFree_v2 r10"),
    ],
)
def test_the_call_that_frees_another_kind_changes_nothing(
    play: Played, line: str, key: tuple[str, str], size: int, free: str
) -> None:
    play.do(line)
    assert play.codes(free) != [0]
    assert play.in_use() == {key: (size, 1)}


def test_what_a_graphs_nodes_allocate_is_there_until_the_graph_is_destroyed(
    play: Played, tracer: Tracer
) -> None:
    play.do("0 cuGraphCreate r20 0", "0 cuGraphCreate r21 0")
    play.do("0 cuGraphAddMemAllocNode r11 r20 1 0 700 r10", "0 cuGraphAddMemAllocNode r12 r20 1 0 30 r13")
    play.do("0 cuGraphAddMemAllocNode r14 r21 1 0 4 r15", "0 cuGraphAddMemFreeNode r16 r20 r10")
    assert play.in_use() == {GRAPH: (734, 3)}
    play.codes("0 cuMemFree_v2 r10")
    assert play.in_use() == {GRAPH: (734, 3)}
    play.do("0 cuGraphDestroy r20")
    assert play.in_use() == {GRAPH: (4, 1)}
    assert freed(tracer.read(), play.pid) == (730, 2)


def test_all_kinds_side_by_side_are_never_summed(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 1", "0 cuMemAllocManaged r11 20 1", "0 cuMemAllocHost_v2 r12 300")
    play.do("0 cuArrayCreate_v2 r13 4000 0 0x01 1", "0 cuGraphCreate r14 0")
    play.do("0 cuGraphAddMemAllocNode r15 r14 1 0 50000 r16", "0 cuImportExternalMemory r17 1 600000")
    assert play.in_use() == {
        DEVICE: (1, 1),
        MANAGED: (20, 1),
        PINNED: (300, 1),
        ARRAY: (4000, 1),
        GRAPH: (50000, 1),
        ("imported", "0"): (600000, 1),
    }
