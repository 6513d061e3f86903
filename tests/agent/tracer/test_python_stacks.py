# SPDX-License-Identifier: Apache-2.0
"""Names, files and lines of Python stacks, against the sources of the programs that allocate."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.tracer import Tracer, TracerOptions
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

PROGRAMS = Path(__file__).parents[2] / "standin" / "programs"

CHAIN = """\
import ctypes, sys

driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)


def allocate(size):
    address = ctypes.c_uint64()
    driver.cuMemAlloc_v2(
        ctypes.byref(address),
        ctypes.c_size_t(size),
    )


class Cache:
    def __init__(self):
        self.fill()

    def fill(self):
        def page(size):
            allocate(size)

        page(64)

    @classmethod
    def ünïcode_名前(cls):
        allocate(65)


Cache()
(lambda: Cache.ünïcode_名前())()
print("ready", flush=True)
sys.stdin.readline()
"""


def lines_with(text: str) -> list[int]:
    return [number for number, line in enumerate(CHAIN.splitlines(), start=1) if text in line]


def only(tracer: Tracer, program: Program, size: int) -> tuple[Frame, ...]:
    stacks = [
        s.stack for s, totals in of(tracer.read(), program.pid).items() if totals.allocated_bytes == size
    ]
    assert len(stacks) == 1
    return stacks[0]


def test_stacks_of_a_process_that_has_ended_keep_names_and_lines(
    start: Callable[..., Program], tracer: Tracer, tmp_path: Path
) -> None:
    source = tmp_path / "chain.py"
    source.write_text(CHAIN.replace('print("ready", flush=True)\nsys.stdin.readline()\n', ""))
    program = start(sys.executable, source)
    assert program.end() == 0
    source.unlink()
    assert [(frame.function, frame.line) for frame in only(tracer, program, 64)][-1] == (
        "allocate",
        lines_with("driver.cuMemAlloc_v2(")[0],
    )


def test_the_first_allocation_of_every_process_has_its_stack(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    body = (
        "import ctypes; d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0); "
        "d.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 7)"
    )
    start(sys.executable, "-c", body).end()  # the interpreter's file becomes known
    tracer.poll(0)
    programs = [start(sys.executable, "-c", body) for _ in range(30)]
    for program in programs:
        assert program.end() == 0
    reading = tracer.read()
    for program in programs:
        stacks = [[frame.function for frame in site.stack] for site in of(reading, program.pid)]
        assert stacks == [["<module>"]]


def test_a_code_object_at_the_address_of_a_freed_one_keeps_its_own_name(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    """The functions of the loop differ in name and first line only, so each gets the place of the last."""
    body = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
address = ctypes.c_uint64()
places = set()
for number in range(200):
    space = {"driver": driver, "address": address, "ctypes": ctypes}
    exec("\\n" * number + f"def f{number:03}(): driver.cuMemAlloc_v2(ctypes.byref(address), {1000 + number})", space)
    function = space.pop(f"f{number:03}")
    places.add(id(function.__code__))
    function()
    del function, space
print(len(places), flush=True)
sys.stdin.readline()
"""
    program = start(sys.executable, "-c", body)
    places = int(program.line())
    assert places < 100, "addresses must be used again, or this shows nothing"
    seen = {
        totals.allocated_bytes: (site.stack[-1].function, site.stack[-1].line)
        for site, totals in of(tracer.read(), program.pid).items()
    }
    assert seen == {1000 + number: (f"f{number:03}", number + 1) for number in range(200)}


def test_code_objects_that_differ_in_their_lines_only_are_told_apart_at_one_address(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    """Same name, file, first line and sizes: everything that a code object points at is reused together."""
    body = CHAIN.split("class Cache", maxsplit=1)[0] + (
        "sources = [compile('def f():' + chr(10) * (k + 1) + f'    allocate({1000 * (k + 1)})', 'generated', 'exec')\n"
        "           for k in range(7)]\n"
        "import marshal\n"
        "stored = [marshal.dumps(source) for source in sources]\n"
        "places = set()\n"
        "for number in range(1400):\n"
        "    space = {'allocate': allocate}\n"
        "    exec(marshal.loads(stored[number % 7]), space)\n"
        "    places.add(id(space['f'].__code__))\n"
        "    space['f']()\n"
        "    del space\n"
        "print(len(places), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    program = start(sys.executable, "-c", body)
    assert int(program.line()) < 700, "addresses must be used again, or this shows nothing"
    bytes_by_line: dict[int, int] = {}
    for site, totals in of(tracer.read(), program.pid).items():
        line = site.stack[-2].line
        bytes_by_line[line] = bytes_by_line.get(line, 0) + totals.allocated_bytes
    assert bytes_by_line == {2 + k: 200 * 1000 * (k + 1) for k in range(7)}


def test_an_unsupported_interpreter_is_named_and_counted_and_its_bytes_are_kept(
    start: Callable[..., Program], tracer: Tracer, losses: Callable[[], dict[str, int]], tmp_path: Path
) -> None:
    old = next((Path.home() / ".pyenv" / "versions").glob("3.[67]*/bin/python3"), None)
    if old is None:
        pytest.skip("this machine has no CPython 3.6 or 3.7")
    source = tmp_path / "chain.py"
    source.write_text(CHAIN)
    program = start(old, source)
    program.line()
    sites = of(tracer.read(), program.pid)
    assert total(sites).in_use_bytes == 64 + 65
    assert {site.stack[0].function for site in sites} == {
        "<CPython older than 3.8 is not supported (supported: 3.8 to 3.15)>"
    }
    assert losses()["python_stack_missed"] == 2


def test_a_program_without_python_keeps_its_bytes_under_a_frame_that_says_why(
    start: Callable[..., Program], tracer: Tracer, standin: StandIn
) -> None:
    program = start(standin.threads, "1", "10")
    program.line()
    stacks = {site.stack for site in of(tracer.read(), program.pid)}
    assert [[(frame.function, frame.kind) for frame in stack] for stack in stacks] == [
        [("<native stack not captured>", FrameKind.UNKNOWN)]
    ]


def test_the_demo_workload_holds_what_a_hand_count_says(
    start: Callable[..., Program], tracer: Tracer
) -> None:
    program = start(sys.executable, PROGRAMS / "inference.py")
    assert program.line() == "ready"
    held: dict[str, int] = {}
    for site, totals in of(tracer.read(), program.pid).items():
        caller = site.stack[-2].function
        held[caller] = held.get(caller, 0) + totals.in_use_bytes
    width, depth, mib = 2048, 12, 1 << 20
    assert held == {
        "Linear.__init__": depth * 2 * (3 * width**2 + width**2 + 4 * width**2 + 4 * width**2),
        "Model.__init__": 2 * 32_000 * width,
        "KeyValueCache._page": 64 * 16 * mib,
        "Server.remember_session": 40 * 2 * mib,
        # The comprehension is a function of its own before 3.12.
        **({"Server.handle.<locals>.<listcomp>": 0} if sys.version_info < (3, 12) else {"Server.handle": 0}),
    }


def test_a_python_that_runs_before_tracing_begins_has_its_stacks_from_then_on(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        CHAIN.split("class Cache", maxsplit=1)[0]
        + "print(1, flush=True)\nsys.stdin.readline()\nallocate(8)\nprint(2, flush=True)\nsys.stdin.readline()\n"
    )
    program = Program(None, [sys.executable, "-c", body], standin)
    program.line()
    with Tracer(TracerOptions(native_stacks=False)) as tracer:
        program.tracer = tracer
        program.go_on()
        program.line()
        assert [frame.function for frame in only(tracer, program, 8)] == ["<module>", "allocate"]
        program.end()
