# SPDX-License-Identifier: Apache-2.0
"""The stand-in driver's own ledger and rules, by hand counts: other tests hold the tracer against them."""

import re
import subprocess
from collections.abc import Mapping

import pytest

from tests.standin.build import SOURCES, StandIn, build
from tests.standin.player import Ledger, parse, play
from tests.standin.sequences import ENVIRONMENT, sequence

MIB = 1 << 20
START = ("0 cuInit 0", "0 cuDevicePrimaryCtxRetain r1 0", "0 cuCtxSetCurrent r1")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build(tmp_path_factory.mktemp("driver"))


def played(standin: StandIn, *lines: str, environment: Mapping[str, str] | None = None) -> tuple[str, Ledger]:
    """The results of the calls of `lines`, and the ledger after them."""
    *said, ledger = play(standin, [*START, *lines, "checkpoint"], environment=environment)
    return " ".join(line.rpartition(" ")[2] for line in said[len(START) :]), parse(ledger)


@pytest.mark.parametrize(
    ("lines", "kind", "device", "live"),
    [
        (["0 cuMemAlloc_v2 r10 700"], "device", 0, (700, 1)),
        (["0 cuMemAllocPitch_v2 r10 r11 513 3 4"], "device", 0, (1024 * 3, 1)),
        (["0 cuMemAlloc r10 700"], "device", 0, (700, 1)),
        (["0 cuMemAllocPitch r10 r11 512 3 4"], "device", 0, (512 * 3, 1)),
        (["0 cuMemAllocAsync r10 5", "0 cuMemAllocAsync_ptsz r11 6"], "device", 0, (11, 2)),
        ([f"0 cuMemCreate r10 {2 * MIB} 1 0 0"], "device", 0, (2 * MIB, 1)),
        ([f"0 cuMemCreate r10 {2 * MIB} 3 0 0"], "pinned_host", -1, (2 * MIB, 1)),
        (["0 cuMemAllocManaged r10 700 1"], "managed", 0, (700, 1)),
        (["0 cuMemAllocHost_v2 r10 700", "0 cuMemHostAlloc r11 3 0"], "pinned_host", -1, (703, 2)),
        (["memory r10 700", "0 cuMemHostRegister_v2 r10 700 0"], "pinned_host", -1, (700, 1)),
        (["0 cuArrayCreate_v2 r10 10 0 0x20 4"], "array", 0, (10 * 4 * 4, 1)),
        (["0 cuArray3DCreate_v2 r10 10 4 3 0x10 2"], "array", 0, (10 * 4 * 3 * 2 * 2, 1)),
        (["0 cuMipmappedArrayCreate r10 8 4 0 0x01 1 9"], "array", 0, (8 * 4 + 4 * 2 + 2 + 1, 1)),
        (["0 cuImportExternalMemory r10 1 700"], "imported", 0, (700, 1)),
        (["0 cuGraphCreate r10 0", "0 cuGraphAddMemAllocNode r11 r10 1 0 700 r12"], "graph", 0, (700, 1)),
    ],
)
def test_an_allocation_counts_in_its_own_kind_only(
    standin: StandIn, lines: list[str], kind: str, device: int, live: tuple[int, int]
) -> None:
    _, ledger = played(standin, *lines)
    assert {row: counts.live for row, counts in ledger.kinds.items()} == {(kind, device): live}


def test_memory_below_4_gib_is_what_the_old_names_give(standin: StandIn) -> None:
    said = play(standin, [*START, "0 cuMemAlloc r10 700", "print r10", "0 cuMemFree r10"])
    assert 0 < int(said[-2]) < 1 << 32
    assert said[-1].endswith("= 0")


def test_an_allocation_beyond_the_capacity_fails_and_a_full_device_leaves_the_other_alone(
    standin: StandIn,
) -> None:
    results, ledger = played(
        standin,
        f"0 cuMemAlloc_v2 r10 {3 * MIB}",
        "0 cuMemAlloc_v2 r11 1",
        f"0 cuMemCreate r11 {2 * MIB} 1 1 0",
        environment={"STANDIN_CUDA_MIB": "3", "STANDIN_CUDA_DEVICES": "2"},
    )
    assert results == "0 2 0"
    assert ledger.failed_calls == {"cuMemAlloc_v2": {2: 1}}
    assert ledger.of("device", 1).live == (2 * MIB, 1)


def test_physical_memory_goes_with_the_last_of_its_references_and_mappings(standin: StandIn) -> None:
    size = 2 * MIB
    create = (f"0 cuMemAddressReserve r9 {4 * size} 0 0 0", f"0 cuMemCreate r10 {size} 1 0 0")
    mapped = (*create, f"0 cuMemMap r9 {size} 0 r10 0", f"0 cuMemMap r9+{size} {size} 0 r10 0")
    released = (*mapped, "0 cuMemRelease r10")
    again = (*released, "0 cuMemRetainAllocationHandle r11 r9", f"0 cuMemUnmap r9 {2 * size}")
    assert played(standin, *create)[1].of("device").live == (size, 1)
    assert played(standin, *create, "0 cuMemRelease r10")[1].of("device").live == (0, 0)
    assert played(standin, *released, f"0 cuMemUnmap r9 {size}")[1].of("device").live == (size, 1)
    assert played(standin, *released, f"0 cuMemUnmap r9 {2 * size}")[1].of("device").live == (0, 0)
    assert played(standin, *mapped, f"0 cuMemUnmap r9 {2 * size}")[1].of("device").live == (size, 1)
    assert played(standin, *again)[1].of("device").live == (size, 1)
    assert played(standin, *again, "0 cuMemRelease r11")[1].of("device").live == (0, 0)


def test_a_handle_is_released_as_often_as_it_was_given(standin: StandIn) -> None:
    size = 2 * MIB
    results, ledger = played(
        standin,
        f"0 cuMemAddressReserve r9 {size} 0 0 0",
        f"0 cuMemCreate r10 {size} 1 0 0",
        f"0 cuMemMap r9 {size} 0 r10 0",
        "0 cuMemRelease r10",
        "0 cuMemRelease r10",
        "0 cuMemRelease 77",
    )
    assert results == "0 0 0 0 1 1"
    assert ledger.failed_frees == {"cuMemRelease": {1: 2}}
    assert ledger.of("device").live == (size, 1)


def test_a_part_of_a_mapping_is_not_unmapped(standin: StandIn) -> None:
    size = 2 * MIB
    results, _ = played(
        standin,
        f"0 cuMemAddressReserve r9 {4 * size} 0 0 0",
        f"0 cuMemCreate r10 {2 * size} 1 0 0",
        f"0 cuMemMap r9 {2 * size} 0 r10 0",
        f"0 cuMemUnmap r9 {size}",
        f"0 cuMemUnmap r9+{size} {size}",
        f"0 cuMemUnmap r9 {3 * size}",
        f"0 cuMemAddressFree r9 {4 * size}",
        f"0 cuMemUnmap r9 {2 * size}",
        f"0 cuMemAddressFree r9 {4 * size}",
    )
    assert results == "0 0 0 1 1 1 1 0 0"


def test_imported_and_multicast_handles_have_no_memory(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        f"0 cuMulticastCreate r10 2 {2 * MIB}",
        f"0 cuMemCreate r11 {2 * MIB} 1 0 0",
        "0 cuMemExportToShareableHandle r12 r11 1 0",
        "0 cuMemImportFromShareableHandle r13 r12 1",
        "0 cuMemRelease r10",
        "0 cuMemRelease r13",
    )
    assert results == "0 0 0 0 0 0"
    assert [(row, counts.live) for row, counts in ledger.kinds.items()] == [(("device", 0), (2 * MIB, 1))]


def test_the_end_of_a_context_frees_what_belongs_to_it(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        "0 cuMemAlloc_v2 r9 1",
        "0 cuCtxCreate_v4 r10 0 0",
        "0 cuMemAlloc_v2 r11 10",
        "0 cuMemAllocHost_v2 r12 100",
        "0 cuMemAllocAsync r13 1000",
        f"0 cuMemCreate r14 {2 * MIB} 1 0 0",
        "0 cuCtxDestroy_v2 r10",
        "0 cuMemFree_v2 r11",
        "0 cuCtxDestroy_v2 r10",
    )
    assert results == "0 0 0 0 0 0 0 1 201"
    assert ledger.of("device").live == (1 + 1000 + 2 * MIB, 3)
    assert ledger.of("pinned_host", -1).live == (0, 0)


def test_a_primary_context_ends_with_its_last_release(standin: StandIn) -> None:
    retained = (
        "0 cuDevicePrimaryCtxRetain r2 0",
        "0 cuMemAlloc_v2 r10 10",
        "0 cuDevicePrimaryCtxRelease_v2 0",
    )
    assert played(standin, *retained)[1].of("device").live == (10, 1)
    results, ledger = played(standin, *retained, "0 cuDevicePrimaryCtxRelease_v2 0", "0 cuMemAlloc_v2 r10 10")
    assert results.endswith("709")
    assert ledger.of("device").live == (0, 0)


def test_a_reset_primary_context_is_empty_and_goes_on(standin: StandIn) -> None:
    results, ledger = played(
        standin, "0 cuMemAlloc_v2 r10 10", "0 cuDevicePrimaryCtxReset_v2 0", "0 cuMemAlloc_v2 r10 3"
    )
    assert results == "0 0 0"
    assert ledger.of("device").live == (3, 1)


def test_a_green_context_has_the_memory_of_the_primary_one(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        "0 cuGreenCtxCreate r10 0 1",
        "0 cuCtxFromGreenCtx r11 r10",
        "0 cuCtxPushCurrent_v2 r11",
        "0 cuMemAlloc_v2 r12 10",
        "0 cuGreenCtxDestroy r10",
        "0 cuMemAlloc_v2 r12 10",
    )
    assert results == "0 0 0 0 0 709"
    assert ledger.of("device").live == (10, 1)


def test_each_thread_has_a_stack_of_contexts(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        "1 cuMemAlloc_v2 r9 1",
        "0 cuCtxCreate_v2 r10 0 1",
        "0 cuMemAlloc_v2 r9 10",
        "1 cuCtxPushCurrent_v2 r10",
        "1 cuMemAlloc_v2 r9 100",
        "0 cuCtxPopCurrent_v2 r11",
        "0 cuMemAlloc_v2 r9 1000",
        "0 cuCtxSetCurrent 0",
        "0 cuMemAlloc_v2 r9 1",
        environment={"STANDIN_CUDA_DEVICES": "2"},
    )
    assert results == "201 0 0 0 0 0 0 0 201"
    assert (ledger.of("device", 0).live, ledger.of("device", 1).live) == ((1000, 1), (110, 2))


def test_a_new_context_gets_the_handle_of_a_destroyed_one(standin: StandIn) -> None:
    create, destroy = "0 cuCtxCreate_v2 r{} 0 0", "0 cuCtxDestroy_v2 r10"
    said = play(standin, [*START, create.format(10), destroy, create.format(11), "print r10", "print r11"])
    assert said[-1] == said[-2]


def test_a_pool_keeps_what_is_freed_until_it_is_synchronized_or_trimmed(standin: StandIn) -> None:
    pool = (
        "0 cuMemPoolCreate r10 1 0",
        "0 cuMemAllocFromPoolAsync r11 1000 r10",
        "0 cuMemAllocFromPoolAsync r12 50 r10",
    )

    def figures(*lines: str) -> list[tuple[int, int, int]]:
        return list(played(standin, *pool, *lines)[1].pools.values())

    free = "0 cuMemFreeAsync r11"
    assert figures(free) == [(0, 50, 1050)]
    assert figures(free, "0 cuCtxSynchronize") == [(0, 50, 50)]
    assert figures("0 cuMemPoolSetAttribute r10 4 300", free, "0 cuStreamSynchronize") == [(0, 50, 300)]
    assert figures(free, "0 cuMemPoolTrimTo r10 70") == [(0, 50, 70)]
    assert figures(free, "0 cuMemPoolDestroy r10") == [(0, 50, 50)]
    assert figures(free, "0 cuMemPoolDestroy r10", "0 cuMemFree_v2 r12") == []


def test_an_imported_allocation_is_counted_once_and_closed_as_often_as_opened(standin: StandIn) -> None:
    opened = (
        "0 cuMemAlloc_v2 r10 700",
        "0 cuIpcGetMemHandle r11 r10",
        *2 * ("0 cuIpcOpenMemHandle_v2 r12 r11 1",),
    )
    close = "0 cuIpcCloseMemHandle r12"
    assert played(standin, *opened, close)[1].of("imported").live == (700, 1)
    results, ledger = played(standin, *opened, close, close, close)
    assert results == "0 0 0 0 0 0 1"
    assert ledger.of("imported").live == (0, 0)
    assert ledger.of("device").live == (700, 1)


def test_memory_of_a_graph_goes_with_the_graph(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        "0 cuGraphCreate r10 0",
        "0 cuGraphAddMemAllocNode r11 r10 1 0 700 r12",
        "0 cuGraphAddMemFreeNode r13 r10 r12",
        "0 cuMemFree_v2 r12",
        "0 cuGraphDestroy r10",
    )
    assert results == "0 0 0 1 0"
    assert ledger.of("graph").live == (0, 0)


def test_a_registered_range_is_registered_once(standin: StandIn) -> None:
    results, _ = played(
        standin,
        "memory r10 8192",
        "0 cuMemHostRegister_v2 r10 4097 0",
        "0 cuMemHostRegister_v2 r10+4096 4096 0",
        "0 cuMemHostUnregister r10",
        "0 cuMemHostUnregister r10",
    )
    assert results == "0 712 0 713"


def test_failures_can_be_asked_for(standin: StandIn) -> None:
    results, ledger = played(
        standin,
        "0 standin_fail_next 999 2",
        "0 cuMemAlloc_v2 r10 1",
        "0 cuMemAllocHost_v2 r10 1",
        "0 cuMemAlloc_v2 r10 1",
        "0 standin_refuse_frees 1",
        "0 cuMemFree_v2 77",
        "0 cuMemFree_v2 r10",
        "0 cuMemFree_v2 r10",
    )
    assert results == "0 999 999 0 0 1 719 0"
    assert ledger.failed == {999: 2}
    assert ledger.failed_frees == {"cuMemFree_v2": {1: 1, 719: 1}}
    assert ledger.of("device").live == (0, 0)


def test_visible_devices_are_those_of_the_environment_in_its_order(standin: StandIn) -> None:
    results, _ = played(
        standin,
        "0 cuDeviceGet r10 1",
        "0 cuDeviceGet r10 2",
        environment={
            "STANDIN_CUDA_DEVICES": "4",
            "CUDA_VISIBLE_DEVICES": "3,GPU-5ad00000-0000-4000-8000-000000000001",
        },
    )
    assert results == "0 101"


def test_every_exported_function_begins_with_what_a_probe_is_cheap_on(standin: StandIn) -> None:
    listing = subprocess.run(
        ["objdump", "-d", standin.library], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    functions = [part.splitlines() for part in listing.split("\n\n") if "<cu" in part.partition(":")[0]]
    assert len(functions) > 75
    assert [lines[0] for lines in functions if not lines[1].endswith("push   %rbp")] == []


def test_a_sequence_is_mostly_legal_and_has_every_call_that_changes_something(standin: StandIn) -> None:
    said = [line.split() for line in play(standin, sequence(1, 10000), environment=ENVIRONMENT)]
    calls = re.findall(r'\.name = "(cu\w+)"', (SOURCES / "play_calls.c").read_text())
    asking = {name for name in calls if "Get" in name or name == "cuMemSetAccess"}
    assert len(calls) > 70
    assert set(calls) - asking <= {words[1] for words in said if words[-1] == "0"}
    assert sum(words[-1] == "0" for words in said) > 0.75 * len(said)


def test_what_a_device_has_left_is_its_capacity_less_what_is_in_the_ledger(standin: StandIn) -> None:
    ask = (*START[1:], "0 cuMemGetInfo_v2 r1 r2", "print r1", "print r2", "checkpoint")
    *_, free, capacity, line = play(standin, [*sequence(3, 3000), *ask], environment=ENVIRONMENT)
    ledger = parse(line)
    kept = sum(reserved - live for device, live, reserved in ledger.pools.values() if device == 0)
    live = ledger.of("device").live[0] + ledger.of("array").live[0]
    assert kept > 0
    assert int(capacity) - int(free) == live + kept


def test_a_sequence_is_the_same_for_the_same_seed(standin: StandIn) -> None:
    assert sequence(7, 500) == sequence(7, 500) != sequence(8, 500)
