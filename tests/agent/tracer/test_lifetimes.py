# SPDX-License-Identifier: Apache-2.0
"""What begins and ends a process, as far as its memory goes: threads, exec, fork, pids that are used again."""

import sys
from collections.abc import Callable

import pytest

from gpuheap.heap.model import Totals
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.agent.tracer.played import Played
from tests.agent.tracer.test_accounting import PRELUDE, python
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

DEVICE = ("device", "0")
EXEC = "os.execv(sys.executable, [sys.executable, '-c', {again!r}])"


def generations(tracer: Tracer, pid: int) -> dict[int, Totals]:
    """By how often the process had exec'ed."""
    sites = of(tracer.read(), pid)
    numbers = {site.process.generation for site in sites}
    return {
        number: total({site: sums for site, sums in sites.items() if site.process.generation == number})
        for number in numbers
    }


def test_what_a_thread_allocated_stays_when_it_exits(tracer: Tracer, standin: StandIn) -> None:
    with Played(tracer, standin) as play:
        play.do("1 cuCtxSetCurrent r1", "1 cuMemAlloc_v2 r10 700", "1 cuMemAlloc_v2 r11 30", "1 respawn")
        assert play.in_use() == {DEVICE: (730, 2)}
        play.do("0 cuMemFree_v2 r10")
        assert play.in_use() == {DEVICE: (30, 1)}
        assert tracer.read().exited.isdisjoint({site.process for site in of(tracer.read(), play.pid)})


def test_the_exit_of_the_main_thread_is_not_that_of_the_process(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    body = """
import threading
kept = allocate(700)
def work():
    driver.cuCtxSetCurrent(context)
    while "Z" not in open(f"/proc/self/task/{os.getpid()}/stat").read():
        pass
    allocate(30)
    say("alone")
    free(kept)
    say("freed")
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
"""
    program = python(start, body)
    assert program.line() == "alone"
    assert total(of(tracer.read(), program.pid)).in_use_bytes == 730
    program.go_on()
    assert program.line() == "freed"
    assert total(of(tracer.read(), program.pid)).in_use_bytes == 30
    assert program.end() == 0
    after = total(of(tracer.read(), program.pid))
    assert (after.in_use_bytes, after.released_at_exit_bytes) == (0, 30)


def test_an_exec_by_another_thread_ends_the_image_and_the_new_one_starts_with_nothing(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    again = PRELUDE + "a = allocate(3); b = allocate(4); free(a); say('new')"
    call = EXEC.format(again=again)
    body = f"""
import threading
allocate(50)
def work():
    driver.cuCtxSetCurrent(context)
    allocate(6)
    {call}
threading.Thread(target=work).start()
threading.Event().wait()
"""
    program = python(start, body)
    assert program.line() == "new"
    images = generations(tracer, program.pid)
    assert (images[0].released_at_exit_bytes, images[0].in_use_bytes) == (56, 0)
    assert (images[1].in_use_bytes, images[1].freed_bytes) == (4, 3)
    assert set(images) == {0, 1}


def test_a_pid_that_is_used_again_is_another_process(start: Callable[..., Program], tracer: Tracer) -> None:
    body = """
class Arguments(ctypes.Structure):  # struct clone_args
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal",
                "stack", "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]
def forked_as(pid):
    wanted = (ctypes.c_int * 1)(pid)
    arguments = Arguments(exit_signal=17, set_tid=ctypes.addressof(wanted), set_tid_size=1)
    libc = ctypes.CDLL(None, use_errno=True)
    child = libc.syscall(435, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
    return child if child >= 0 else -ctypes.get_errno()
first = os.fork()
if not first:
    allocate(100), allocate(5)
    os._exit(0)
os.waitpid(first, 0)
second = forked_as(first)
if not second:
    allocate(7)
    say(first)
    os._exit(0)
if second < 0:
    say(second)
os.waitpid(first, 0)
"""
    program = python(start, body)
    pid = int(program.line())
    if pid < 0:
        pytest.skip(f"a pid cannot be chosen here: clone3 with set_tid gives errno {-pid}")
    sites = of(tracer.read(), pid)
    by_start = {site.process.start_ns: Totals() for site in sites}
    for start_ns in by_start:
        by_start[start_ns] = total({s: sums for s, sums in sites.items() if s.process.start_ns == start_ns})
    old, new = (by_start[start_ns] for start_ns in sorted(by_start))
    assert (old.allocated_bytes, old.in_use_bytes, old.released_at_exit_bytes) == (105, 0, 105)
    assert (new.allocated_bytes, new.in_use_bytes, new.released_at_exit_bytes) == (7, 7, 0)


def test_a_process_from_before_tracing_has_joined_late_and_one_that_it_becomes_or_starts_has_not(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    again = PRELUDE + "allocate(3); say('new')"
    body = (
        "allocate(1); say('older')\n"
        "allocate(20)\n"
        "child = os.fork()\n"
        "if not child: allocate(7); os._exit(0)\n"
        "os.waitpid(child, 0); say(child)\n" + EXEC.format(again=again)
    )
    program = Program(None, [sys.executable, "-c", PRELUDE + body], standin)
    assert program.line() == "older"
    with Tracer() as tracer:
        program.tracer = tracer
        program.go_on()
        child = int(program.line())
        program.go_on()
        assert program.line() == "new"
        reading = tracer.read()
        program.end()
    late = {(one.pid, one.generation) for one in reading.joined_late if one.pid in (program.pid, child)}
    assert late == {(program.pid, 0)}
    allocated = {
        (site.process.pid, site.process.generation): sums.allocated_bytes
        for pid in (program.pid, child)
        for site, sums in of(reading, pid).items()
    }
    assert allocated == {(program.pid, 0): 20, (child, 0): 7, (program.pid, 1): 3}


def test_a_process_that_execs_before_its_first_call_has_not_joined_late(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    again = PRELUDE + "allocate(3); say('new')"
    text = "import os, sys; print('older', flush=True); sys.stdin.readline(); " + EXEC.format(again=again)
    program = Program(None, [sys.executable, "-c", text], standin)
    assert program.line() == "older"
    with Tracer() as tracer:
        program.tracer = tracer
        program.go_on()
        assert program.line() == "new"
        reading = tracer.read()
        program.end()
    assert total(of(reading, program.pid)).in_use_bytes == 3
    assert program.pid not in {process.pid for process in reading.joined_late}


def test_forks_while_calls_are_under_way_change_nothing_of_the_parents(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    body = """
import threading
done = threading.Event()
kept, churned = [], 0
def churn():
    global churned
    driver.cuCtxSetCurrent(context)
    while not done.is_set():
        free(allocate(5))
        churned += 1
        if churned % 50 == 0:
            kept.append(allocate(9))
thread = threading.Thread(target=churn)
thread.start()
while churned < 10:
    pass
for _ in range(50):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
done.set()
thread.join()
say(f"{churned} {len(kept)}")
"""
    program = python(start, body)
    churned, kept = (int(word) for word in program.line().split())
    assert total(of(tracer.read(), program.pid)) == Totals(
        allocated_bytes=5 * churned + 9 * kept,
        allocated_objects=churned + kept,
        freed_bytes=5 * churned,
        freed_objects=churned,
    )


def test_a_child_that_execs_something_else_takes_nothing_with_it(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    program = python(
        start, "import subprocess; allocate(10); subprocess.run(['true']); os.system('true'); say(1)"
    )
    program.line()
    assert generations(tracer, program.pid) == {0: Totals(allocated_bytes=10, allocated_objects=1)}


@pytest.mark.parametrize("number", [2, 6, 9, 11, 15])
def test_a_process_that_a_signal_ends_releases_what_it_held(
    start: Callable[..., Program], tracer: Tracer, number: int
) -> None:
    reset = "" if number == 9 else f"import signal; signal.signal({number}, signal.SIG_DFL)\n"
    program = python(start, f"{reset}allocate(10); a = allocate(7); free(a); os.kill(os.getpid(), {number})")
    assert program.end() == -number
    after = total(of(tracer.read(), program.pid))
    assert (after.in_use_bytes, after.released_at_exit_bytes, after.released_at_exit_objects) == (0, 10, 1)
