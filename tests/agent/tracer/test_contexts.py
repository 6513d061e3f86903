# SPDX-License-Identifier: Apache-2.0
"""What goes with a context and what does not, and which device an allocation is charged to. Counted by hand."""

import sys
from collections.abc import Iterator

import pytest

from gpuheap.heap.model import HOST
from gpuheap.tracer import Tracer
from gpuheap.tracer.devices import Gpu
from tests.agent.tracer.conftest import Program, of
from tests.agent.tracer.played import Played, in_use
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

MIB = 1 << 20
UUIDS = ("GPU-5ad00000-0000-4000-8000-000000000000", "GPU-5ad00000-0000-4000-8000-000000000001")


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin) as played:
        yield played


@pytest.mark.parametrize(
    ("lines", "key", "size"),
    [
        (["0 cuMemAlloc_v2 r10 700"], ("device", "0"), 700),
        (["0 cuMemAlloc r10 700"], ("device", "0"), 700),
        (["0 cuMemAllocPitch_v2 r10 r11 513 3 4"], ("device", "0"), 1024 * 3),
        (["0 cuMemAllocManaged r10 700 1"], ("managed", "0"), 700),
        (["0 cuMemAllocHost_v2 r10 700"], ("pinned_host", "host"), 700),
        (["0 cuMemHostAlloc r10 700 0"], ("pinned_host", "host"), 700),
        (["memory r10 4096", "0 cuMemHostRegister_v2 r10 4096 0"], ("pinned_host", "host"), 4096),
        (["0 cuArrayCreate_v2 r10 10 0 0x20 4"], ("array", "0"), 10 * 4 * 4),
        (["0 cuImportExternalMemory r10 1 700"], ("imported", "0"), 700),
    ],
)
def test_the_end_of_a_context_frees_what_was_allocated_in_it_and_nothing_of_another(
    play: Played, lines: list[str], key: tuple[str, str], size: int
) -> None:
    play.do("0 cuMemAlloc_v2 r5 11", "0 cuCtxCreate_v2 r2 0 1", "0 cuMemAlloc_v2 r6 5")
    play.do("0 cuCtxCreate_v2 r3 0 0", *lines)
    others = {("device", "0"): (11, 1), ("device", "1"): (5, 1)}
    bytes_before, objects_before = others.get(key, (0, 0))
    assert play.in_use() == {**others, key: (bytes_before + size, objects_before + 1)}
    play.do("0 cuCtxDestroy_v2 r3")
    assert play.in_use() == others


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        ([f"0 cuMemCreate r10 {2 * MIB} 1 0 0"], 2 * MIB),
        (["0 cuMemAllocAsync r10 700"], 700),
        (["0 cuMemPoolCreate r9 1 0", "0 cuMemAllocFromPoolAsync r10 700 r9"], 700),
    ],
)
def test_memory_of_handles_and_of_pools_outlives_the_context(
    play: Played, lines: list[str], size: int
) -> None:
    play.do("0 cuCtxCreate_v2 r2 0 0", *lines, "0 cuCtxDestroy_v2 r2")
    assert play.in_use() == {("device", "0"): (size, 1)}


def test_a_context_ends_with_what_other_threads_allocated_in_it(play: Played) -> None:
    play.do("0 cuCtxCreate_v2 r2 0 0", "1 cuCtxSetCurrent r2", "1 cuMemAlloc_v2 r10 700")
    play.do("0 cuCtxDestroy_v2 r2")
    assert play.in_use() == {}


def test_a_context_that_the_driver_refuses_to_end_keeps_its_memory(play: Played) -> None:
    play.do("0 cuCtxCreate_v2 r2 0 0", "0 cuMemAlloc_v2 r10 700")
    assert play.codes("0 standin_refuse_frees 1", "0 cuCtxDestroy_v2 r2") == [0, 719]
    assert play.in_use() == {("device", "0"): (700, 1)}


def test_a_primary_context_ends_when_it_was_released_as_often_as_retained(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuDevicePrimaryCtxRetain r2 0")
    play.do("0 cuDevicePrimaryCtxRelease_v2 0")
    assert play.in_use() == {("device", "0"): (700, 1)}
    play.do("0 cuDevicePrimaryCtxRelease_v2 0")
    assert play.in_use() == {}


def test_a_reset_frees_at_once_however_often_the_context_was_retained(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuDevicePrimaryCtxRetain r2 0", "0 cuDevicePrimaryCtxReset_v2 0")
    assert play.in_use() == {}


def test_a_reset_of_one_device_frees_nothing_of_the_other(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuDevicePrimaryCtxRetain r2 1", "0 cuDevicePrimaryCtxReset_v2 1")
    assert play.in_use() == {("device", "0"): (700, 1)}


def test_after_a_reset_a_thread_goes_on_in_the_same_context(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuDevicePrimaryCtxReset_v2 0", "0 cuMemAlloc_v2 r11 30")
    play.do("0 cuMemAlloc_v2 r12 4")
    assert play.in_use() == {("device", "0"): (34, 2)}
    play.do("0 cuMemFree_v2 r11")
    assert play.in_use() == {("device", "0"): (4, 1)}
    play.do("0 cuDevicePrimaryCtxReset_v2 0")
    assert play.in_use() == {}, "what came after the first reset goes with the second"


def test_a_handle_of_a_context_that_is_given_again_is_another_context(play: Played) -> None:
    play.do("0 cuCtxCreate_v2 r2 0 0", "0 cuMemAlloc_v2 r10 100", "0 cuCtxDestroy_v2 r2")
    play.do("0 cuCtxCreate_v2 r3 0 1", "0 cuMemAlloc_v2 r11 7")
    assert play.value("r2") == play.value("r3"), "the test is about a driver that gives handles again"
    assert play.in_use() == {("device", "1"): (7, 1)}
    play.do("0 cuCtxDestroy_v2 r3")
    assert play.in_use() == {}


def test_the_end_of_a_green_context_frees_nothing_while_the_primary_one_is_retained(play: Played) -> None:
    play.do("0 cuGreenCtxCreate r2 0 1", "0 cuCtxFromGreenCtx r3 r2", "0 cuCtxPushCurrent_v2 r3")
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuCtxPopCurrent_v2 r4", "0 cuGreenCtxDestroy r2")
    assert play.in_use() == {("device", "0"): (700, 1)}
    play.do("0 cuDevicePrimaryCtxRelease_v2 0")
    assert play.in_use() == {}


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        (["0 cuDevicePrimaryCtxRetain r2 1"], "0"),  # retained is not current
        (["0 cuDevicePrimaryCtxRetain r2 1", "0 cuCtxSetCurrent r2"], "1"),
        (["0 cuDevicePrimaryCtxRetain r2 1", "0 cuCtxSetCurrent r2", "0 cuCtxSetCurrent r1"], "0"),
        (["0 cuDevicePrimaryCtxRetain r2 1", "0 cuCtxPushCurrent_v2 r2"], "1"),
        (["0 cuDevicePrimaryCtxRetain r2 1", "0 cuCtxPushCurrent_v2 r2", "0 cuCtxPopCurrent_v2 r3"], "0"),
        (["0 cuCtxCreate_v2 r2 0 1"], "1"),
        (["0 cuCtxCreate_v3 r2 0 0 1"], "1"),
        (["0 cuCtxCreate_v4 r2 0 1"], "1"),
        (["0 cuCtxCreate_v2 r2 0 1", "0 cuCtxPopCurrent_v2 r3"], "0"),
        (["0 cuCtxCreate_v2 r2 0 1", "0 cuCtxDestroy_v2 r2"], "0"),
        (["0 cuGreenCtxCreate r2 1 1", "0 cuCtxFromGreenCtx r3 r2", "0 cuCtxSetCurrent r3"], "1"),
    ],
)
def test_linear_memory_is_on_the_device_of_the_current_context(
    play: Played, lines: list[str], device: str
) -> None:
    play.do(*lines, "0 cuMemAlloc_v2 r10 700")
    assert play.in_use() == {("device", device): (700, 1)}


def test_each_thread_has_a_current_context_of_its_own(play: Played) -> None:
    play.do("1 cuDevicePrimaryCtxRetain r2 1", "1 cuCtxSetCurrent r2")
    for thread in (0, 1, 0, 1, 1):
        play.do(f"{thread} cuMemAlloc_v2 r10 {10 + thread}")
    assert play.in_use() == {("device", "0"): (20, 2), ("device", "1"): (33, 3)}


def test_below_more_contexts_than_are_remembered_the_device_is_unknown_not_wrong(play: Played) -> None:
    play.do("0 cuDevicePrimaryCtxRetain r2 1")
    play.do(*["0 cuCtxPushCurrent_v2 r2"] * 9, *["0 cuCtxPopCurrent_v2 r99"] * 9, "0 cuMemAlloc_v2 r10 700")
    assert play.in_use() == {("device", "unknown"): (700, 1)}
    play.do("0 cuCtxSetCurrent r1", "0 cuMemAlloc_v2 r11 30")
    assert play.in_use() == {("device", "unknown"): (700, 1), ("device", "0"): (30, 1)}


@pytest.mark.parametrize(
    ("lines", "key", "size"),
    [
        ([f"0 cuMemCreate r10 {2 * MIB} 1 1 0"], ("device", "1"), 2 * MIB),
        ([f"0 cuMemCreate r10 {2 * MIB} 2 0 0"], ("pinned_host", "host"), 2 * MIB),
        (["0 cuMemPoolCreate r9 1 1", "0 cuMemAllocFromPoolAsync r10 700 r9"], ("device", "1"), 700),
        (["0 cuMemPoolCreate r9 2 0", "0 cuMemAllocFromPoolAsync r10 700 r9"], ("pinned_host", "host"), 700),
        (["0 cuGraphCreate r9 0", "0 cuGraphAddMemAllocNode r10 r9 1 1 700 r11"], ("graph", "1"), 700),
    ],
)
def test_a_location_that_a_call_names_decides_not_the_current_context(
    play: Played, lines: list[str], key: tuple[str, str], size: int
) -> None:
    play.do(*lines)
    assert play.in_use() == {key: (size, 1)}


def test_a_context_from_before_tracing_is_on_an_unknown_device_until_a_call_tells(standin: StandIn) -> None:
    with Played(None, standin) as play, Tracer() as tracer:
        play.tracer = tracer
        before = tracer.read().losses["unknown_device"]
        play.do("0 cuMemAlloc_v2 r10 700")
        reading = tracer.read()
        assert in_use(reading, play.pid) == {("device", "unknown"): (700, 1)}
        assert reading.losses["unknown_device"] > before
        play.do("0 cuCtxGetDevice r3", "0 cuMemAlloc_v2 r11 30")
        assert play.in_use() == {("device", "unknown"): (700, 1), ("device", "0"): (30, 1)}


def test_a_program_that_chooses_its_devices_itself_decides_the_uuid(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = tuple(
        Gpu(uuid=uuid, model="stand-in", bus=f"0000:0{at}:00.0", minor=at) for at, uuid in enumerate(UUIDS)
    )
    monkeypatch.setattr("gpuheap.tracer.gpus.installed_gpus", lambda: gpus)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    monkeypatch.setenv("STANDIN_CUDA_DEVICES", "2")
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    body = (
        PRELUDE
        + "allocate(700); host = ctypes.c_void_p(); driver.cuMemAllocHost_v2(ctypes.byref(host), 9); say(1)"
    )
    chooses = 'import os; os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"\n' + body
    with Tracer() as tracer:
        programs = [Program(tracer, [sys.executable, "-c", text], standin) for text in (body, chooses)]
        for program in programs:
            program.line()
        reading = tracer.read()
        devices = [{site.device for site in of(reading, program.pid)} for program in programs]
        for program in programs:
            program.end()
    assert [{device.ordinal for device in some - {HOST}} for some in devices] == [{0}, {0}]
    assert [{device.uuid for device in some - {HOST}} for some in devices] == [{UUIDS[0]}, {UUIDS[1]}]
    assert all(HOST in some for some in devices)
