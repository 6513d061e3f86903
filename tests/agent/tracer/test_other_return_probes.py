# SPDX-License-Identifier: Apache-2.0
"""Stacks on which another tool's return probes have replaced return addresses: set as perf and bpftrace set theirs."""

import ctypes
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, tracing
from tests.standin.build import StandIn

UPROBE = Path("/sys/bus/event_source/devices/uprobe/type")
ATTRIBUTES = "<IIQQQQQIIQQ"
"""struct perf_event_attr to its field config2 (PERF_ATTR_SIZE_VER1)"""

RETURN = 1
"""In `config`: as /sys/bus/event_source/devices/uprobe/format/retprobe says"""

PERF_EVENT_OPEN = 298
pytestmark = [
    pytest.mark.bpf,
    pytest.mark.skipif(not UPROBE.exists(), reason=f"needs uprobes: there is no {UPROBE}"),
]

PROGRAM = """
#include <stdio.h>
int cuInit(unsigned);
int cuMemAlloc_v2(unsigned long *, unsigned long);

__attribute__((noipa)) static int inner(unsigned long size)
{
	unsigned long address;
	return cuMemAlloc_v2(&address, size) + 1;
}
__attribute__((noipa)) static int middle(unsigned long size) { return inner(size) + 1; }
__attribute__((noipa)) static int recursive(int depth, unsigned long size)
{
	return depth ? recursive(depth - 1, size) + 1 : middle(size) + 1;
}
__attribute__((noipa)) static int outer(int depth, unsigned long size) { return recursive(depth, size) + 1; }
int main(void)
{
	unsigned long size;
	int depth;

	cuInit(0);
	while (scanf("%d %lu", &depth, &size) == 2) {
		outer(depth, size);
		puts("done");
		fflush(stdout);
	}
}
"""


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled(PROGRAM)


@pytest.fixture(scope="module")
def tracer(standin: StandIn) -> Iterator[Tracer]:
    with tracing(standin, native_stacks=True) as tracer:
        yield tracer


def offset_of(file: Path, function: str) -> int:
    """In the file, of code that is linked at as many bytes from its beginning."""
    symbols = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in symbols.splitlines() if line.split()[-1].partition(".")[0] == function]
    return int(line.split()[0], 16)


@contextmanager
def return_probes(*places: tuple[Path, str]) -> Iterator[None]:
    """Set until the end of the block."""
    with ExitStack() as opened:
        for file, function in places:
            opened.callback(os.close, _return_probe(file, offset_of(file, function)))
        yield


def _return_probe(file: Path, offset: int) -> int:
    path = ctypes.create_string_buffer(bytes(file))
    kind, size = int(UPROBE.read_text()), struct.calcsize(ATTRIBUTES)
    attributes = struct.pack(ATTRIBUTES, kind, size, RETURN, 0, 0, 0, 0, 0, 0, ctypes.addressof(path), offset)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(PERF_EVENT_OPEN, attributes, -1, 0, -1, ctypes.c_ulong(8))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "a return probe could not be set", str(file))
    return fd


def stacks(tracer: Tracer, pid: int) -> dict[int, list[str]]:
    """From `main` on, by the bytes that were asked for."""
    found = {}
    for site, totals in of(tracer.read(), pid).items():
        names = list(map(shown, site.stack))
        found[totals.allocated_bytes] = names[names.index("main") :] if "main" in names else names
    return found


def shown(frame: Frame) -> str:
    return frame.function if frame.kind is FrameKind.NATIVE else f"({frame.function})"


def ask(program: Program, depth: int, size: int) -> None:
    program.write(f"{depth} {size}\n")
    assert program.line() == "done"


def test_return_probes_on_any_function_of_the_stack_change_nothing(
    start: Callable[..., Program], tracer: Tracer, program: Path, standin: StandIn
) -> None:
    running = start(program)
    ask(running, 1, 100)
    probed = [(program, "inner"), (program, "middle"), (program, "outer"), (program, "main")]
    with return_probes((standin.library, "cuMemAlloc_v2"), *probed):
        ask(running, 1, 1000)
        second = start(program)
        ask(second, 1, 2000)
    stack = ["main", "outer", "recursive", "recursive", "middle", "inner"]
    assert stacks(tracer, running.pid) == {1100: stack}
    assert stacks(tracer, second.pid) == {2000: stack}


@pytest.mark.parametrize("depth", [5, 20, 62])
def test_a_function_that_calls_itself_may_have_one(
    start: Callable[..., Program], tracer: Tracer, program: Path, depth: int
) -> None:
    running = start(program)
    with return_probes((program, "recursive")):
        ask(running, depth, 1000)
    assert stacks(tracer, running.pid) == {
        1000: ["main", "outer", *["recursive"] * (depth + 1), "middle", "inner"]
    }
