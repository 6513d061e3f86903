# SPDX-License-Identifier: Apache-2.0
"""Memory of another process is imported where it is opened, and owned once: by the process that allocated it."""

import sys
from collections.abc import Callable, Iterator

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program
from tests.agent.tracer.played import Played, freed, in_use
from tests.agent.tracer.test_accounting import PRELUDE
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

PAGE = 2 << 20
DEVICE, IMPORTED = ("device", "0"), ("imported", "0")

IPC = """
class Handle(ctypes.Structure):  # CUipcMemHandle, which is passed by value
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
def exported(address):
    handle = Handle()
    assert driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)) == 0
    return bytes(handle).hex()
def opened(text):
    address = ctypes.c_uint64()
    handle = Handle.from_buffer_copy(bytes.fromhex(text))
    assert driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1) == 0
    return ctypes.c_uint64(address.value)
"""
OWNER = PRELUDE + IPC + "address = allocate(1234); say(exported(address)); free(address); say('freed')"
OPENER = (
    PRELUDE
    + IPC
    + """
text = sys.argv[1]
for step in ("first = opened(text)", "second = opened(text)", "driver.cuIpcCloseMemHandle(second)",
             "driver.cuIpcCloseMemHandle(first)", "third = opened(text)"):
    exec(step)
    say(step)
"""
)


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin) as played:
        yield played


def test_memory_opened_by_its_ipc_handle_is_imported_until_it_was_closed_as_often_as_opened(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    owner = start(sys.executable, "-c", OWNER)
    opener = start(sys.executable, "-c", OPENER, owner.line())
    held, owned = [], []
    for _ in range(5):
        opener.line()
        reading = tracer.read()
        held.append(in_use(reading, opener.pid))
        owned.append(in_use(reading, owner.pid))
        opener.go_on()
    there = {IMPORTED: (1234, 1)}
    assert held == [there, there, there, {}, there]
    assert owned == [{DEVICE: (1234, 1)}] * 5


def test_memory_that_two_processes_have_opened_is_imported_by_each(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    owner = start(sys.executable, "-c", OWNER)
    handle = owner.line()
    openers = [start(sys.executable, "-c", OPENER, handle) for _ in range(2)]
    for opener in openers:
        opener.line()
    openers[0].kill()
    reading = tracer.read()
    assert [in_use(reading, opener.pid) for opener in openers] == [{}, {IMPORTED: (1234, 1)}]
    assert in_use(reading, owner.pid) == {DEVICE: (1234, 1)}


def test_the_owners_free_is_the_owners_alone(start: Callable[..., Program], tracer: Tracer) -> None:
    owner = start(sys.executable, "-c", OWNER)
    opener = start(sys.executable, "-c", OPENER, owner.line())
    opener.line()
    owner.go_on()
    owner.line()
    reading = tracer.read()
    assert in_use(reading, owner.pid) == {}
    assert in_use(reading, opener.pid) == {IMPORTED: (1234, 1)}


def test_memory_whose_owner_was_not_seen_is_imported_without_a_size(standin: StandIn) -> None:
    owner = Program(None, [sys.executable, "-c", OWNER], standin)
    handle = owner.line()
    with Tracer() as tracer:
        opener = Program(tracer, [sys.executable, "-c", OPENER, handle], standin)
        opener.line()
        assert in_use(tracer.read(), opener.pid) == {IMPORTED: (0, 1)}
        for program in (opener, owner):
            program.kill()


def test_a_close_that_the_driver_refuses_leaves_it_open(play: Played) -> None:
    play.do("0 cuMemAlloc_v2 r10 700", "0 cuIpcGetMemHandle r11 r10", "0 cuIpcOpenMemHandle_v2 r12 r11 1")
    play.do("0 cuIpcOpenMemHandle_v2 r12 r11 1")
    for closing in (1, 2):
        assert play.codes("0 standin_refuse_frees 1", "0 cuIpcCloseMemHandle r12") == [0, 719]
        assert play.in_use() == {DEVICE: (700, 1), IMPORTED: (700, 1)}, f"closing {closing}"
        play.do("0 cuIpcCloseMemHandle r12")
    assert play.in_use() == {DEVICE: (700, 1)}


def test_physical_memory_of_another_process_is_imported_when_it_is_mapped(
    play: Played, start: Callable[..., Program], tracer: Tracer
) -> None:
    play.do(f"0 cuMemCreate r10 {PAGE} 1 0 0", "0 cuMemExportToShareableHandle r11 r10 1 0")
    body = f"""
fd = os.open("/proc/{play.pid}/fd/{play.value("r11")}", os.O_RDWR)
handle, address = ctypes.c_uint64(), ctypes.c_uint64()
assert driver.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), 1) == 0
page = ctypes.c_size_t({PAGE})
assert driver.cuMemAddressReserve(ctypes.byref(address), page, page, 0, 0) == 0
assert driver.cuMemMap(address, page, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
assert driver.cuMemRelease(handle) == 0
say("mapped")
assert driver.cuMemUnmap(address, page) == 0
say("unmapped")
"""
    other = start(sys.executable, "-c", PRELUDE + body)
    assert other.line() == "mapped"
    assert (in_use(tracer.read(), other.pid), play.in_use()) == ({IMPORTED: (PAGE, 1)}, {DEVICE: (PAGE, 1)})
    other.go_on()
    assert other.line() == "unmapped"
    assert (in_use(tracer.read(), other.pid), play.in_use()) == ({}, {DEVICE: (PAGE, 1)})


def test_external_memory_is_imported_until_it_is_destroyed(play: Played, tracer: Tracer) -> None:
    play.do("0 cuImportExternalMemory r10 1 700", "0 cuImportExternalMemory r11 1 30")
    assert play.in_use() == {IMPORTED: (730, 2)}
    play.do("0 cuDestroyExternalMemory r10")
    assert play.in_use() == {IMPORTED: (30, 1)}
    assert freed(tracer.read(), play.pid) == (700, 1)


def test_a_buffer_of_external_memory_is_no_more_memory_than_it(play: Played) -> None:
    play.do("0 cuImportExternalMemory r10 1 700", "0 cuExternalMemoryGetMappedBuffer r11 r10 0 700")
    assert play.in_use() == {IMPORTED: (700, 1)}
    play.do("0 cuMemFree_v2 r11")
    assert play.in_use() == {IMPORTED: (700, 1)}
