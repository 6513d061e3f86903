# SPDX-License-Identifier: Apache-2.0
"""Code that says nothing of its frames: musl's, code made at run time, and the trampoline of return probes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gpuheap.stacks.memory_map import UPROBES, MemoryMap, Region
from gpuheap.stacks.snapshot import Snapshot
from gpuheap.stacks.symbols import Symbols
from gpuheap.stacks.unreported_frames import ends_in_call
from gpuheap.stacks.unwinder import Ended, Unwinder, Unwound
from tests.debian import NotObtainable
from tests.interpreters.found import command

from .programs import CALLBACK, SIGNAL
from .stopped import RED_ZONE_BYTES, compiled, reading_thread, traced, waiting

MADE_AT_RUN_TIME: Final = """
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
STOP
static void callee(void) { stop(); __asm__ volatile(""); }
__attribute__((noinline)) static int caller(void (*code)(void (*)(void))) { code(callee); return 3; }
int main(void)
{
    static const unsigned char bytes[] = {CODE};
    void *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, bytes, sizeof(bytes));
    return caller((void (*)(void (*)(void)))code) + 1;
}
"""

# sub $0x38,%rsp; call *%rdi; add $0x38,%rsp; ret: as Python's trampolines for `perf` do, with some locals.
WITHOUT_FRAME_POINTER: Final = "48 83 ec 38 ff d7 48 83 c4 38 c3"
# push %rbp; mov %rsp,%rbp; sub $0x100,%rsp; call *%rdi; leave; ret
WITH_FRAME_POINTER: Final = "55 48 89 e5 48 81 ec 00 01 00 00 ff d7 c9 c3"


@contextmanager
def stopped(program: Path) -> Iterator[tuple[MemoryMap, Snapshot]]:
    with waiting(program) as process:
        memory_map = MemoryMap(process.pid)
        with traced(reading_thread(process)) as thread:
            yield memory_map, thread.snapshot()


def names(found: Unwound, memory_map: MemoryMap) -> list[str]:
    """Of the frames, without those of the C library."""
    symbols = Symbols()
    named = [symbols.name(address, memory_map) for address in found.addresses]
    symbols.close()
    return [symbol.function for symbol in named if "/lib" not in symbol.library]


@pytest.mark.parametrize(
    "code", [WITHOUT_FRAME_POINTER, WITH_FRAME_POINTER], ids=["bare", "with frame pointer"]
)
@pytest.mark.parametrize("compiler", [("gcc", "-O2"), ("gcc", "-O2", "-static"), ("gcc", "-O0")])
def test_code_made_at_run_time_is_one_frame_and_its_caller_follows(
    code: str, compiler: tuple[str, ...], tmp_path: Path
) -> None:
    source = MADE_AT_RUN_TIME.replace("CODE", ",".join(f"0x{byte}" for byte in code.split()))
    with stopped(compiled(tmp_path, "program", source, *compiler)) as (memory_map, snapshot):
        found = Unwinder().unwind(snapshot, memory_map)
        own = names(found, memory_map)
    gone = Unwinder().unwind(snapshot, memory_map)
    assert own[:5] == ["stop", "callee", "[code without a file]", "caller", "main"]
    assert (found.reason, found.guesses) == (None, 0), "its code says how it ends"
    assert gone == replace(found, guesses=1), "its code is gone with the process"


@pytest.mark.parametrize("options", [(), ("-static",)], ids=["shared", "static"])
def test_functions_around_those_of_musl_are_found(options: tuple[str, ...], tmp_path: Path) -> None:
    """Its own frames in between are not, but for those that call described ones."""
    with stopped(compiled(tmp_path, "program", CALLBACK, "musl-gcc", "-O2", *options)) as (
        memory_map,
        snapshot,
    ):
        found = Unwinder().unwind(snapshot, memory_map)
        own = names(found, memory_map)
    assert [name for name in own if name in CALLBACK or name == "_start"] == [
        *("stop", "compare", "sorted", "main"),
        "_start",
    ]
    assert found.reason is None
    assert found.guesses > 0


def test_a_signal_under_musl_is_known_by_the_code_that_it_returns_to(tmp_path: Path) -> None:
    program = compiled(tmp_path, "program", SIGNAL, "musl-gcc", "-O2", "-static")
    with stopped(program) as (memory_map, snapshot):
        found = Unwinder().unwind(snapshot, memory_map)
        own = names(found, memory_map)
    assert own[:2] == ["stop", "handler"]
    assert own[3:5] == ["interrupted", "main"], "and the signal's frame before them"


def test_return_addresses_that_probes_replaced_are_skipped_or_looked_past(tmp_path: Path) -> None:
    """As the kernel does it: the address on the stack leads to the beginning of its own page."""
    with stopped(compiled(tmp_path, "program", CALLBACK, "gcc", "-O2")) as (memory_map, snapshot):
        plain = Unwinder().unwind(snapshot, memory_map)
        original = _call_in("main", plain, memory_map) + 1
        page = max(region.begin for region in memory_map.regions if region.end < 1 << 47) - (1 << 20)
        _add(memory_map, Region(page, page + 4096, True, 0, "00:00", 0, UPROBES))
        stack = snapshot.stack.replace(original.to_bytes(8, "little"), page.to_bytes(8, "little"), 1)
        hijacked = replace(snapshot, stack=stack)
        memory_map.refresh = lambda: False  # type: ignore[method-assign]
        told = Unwinder().unwind(replace(hijacked, original_returns=(original,)), memory_map)
        untold = Unwinder().unwind(hijacked, memory_map)
    assert told == plain
    assert names(untold, memory_map) == ["stop", "compare", "sorted", UPROBES, "_start"]
    assert (untold.reason, untold.guesses) == (None, 1)


def _call_in(function: str, found: Unwound, memory_map: MemoryMap) -> int:
    symbols = Symbols()
    address = next(one for one in found.addresses if symbols.name(one, memory_map).function == function)
    symbols.close()
    return address


def _add(memory_map: MemoryMap, region: Region) -> None:
    memory_map._regions.append(region)
    memory_map._regions.sort(key=lambda one: one.begin)
    memory_map._begins[:] = [one.begin for one in memory_map._regions]


def test_code_that_cannot_be_passed_ends_the_stack_with_its_reason(tmp_path: Path) -> None:
    source = MADE_AT_RUN_TIME.replace("CODE", ",".join(f"0x{byte}" for byte in WITHOUT_FRAME_POINTER.split()))
    with stopped(compiled(tmp_path, "program", source, "gcc", "-O2")) as (memory_map, snapshot):
        found = Unwinder().unwind(replace(snapshot, stack=snapshot.stack[: RED_ZONE_BYTES + 48]), memory_map)
        own = names(found, memory_map)
    assert own == ["stop", "callee", "[code without a file]"]
    assert found.reason is Ended.NO_INFORMATION


@pytest.mark.parametrize(
    ("code", "is_call"),
    [
        pytest.param("e8 00 10 00 00", True, id="call rel32"),
        pytest.param("ff d0", True, id="call *%rax"),
        pytest.param("41 ff d4", True, id="call *%r12"),
        pytest.param("ff 15 01 02 03 04", True, id="call *0x4030201(%rip)"),
        pytest.param("ff 50 10", True, id="call *0x10(%rax)"),
        pytest.param("ff 94 24 00 01 00 00", True, id="call *0x100(%rsp)"),
        pytest.param("ff 14 24", True, id="call *(%rsp)"),
        pytest.param("ff 14 c5 00 10 00 00", True, id="call *0x1000(,%rax,8)"),
        pytest.param("ff 10", True, id="call *(%rax)"),
        pytest.param("ff e0", False, id="jmp *%rax"),
        pytest.param("ff 25 01 02 03 04", False, id="jmp *0x4030201(%rip)"),
        pytest.param("48 83 c4 38 c3", False, id="add; ret"),
        pytest.param("ff 74 24 08", False, id="push 8(%rsp)"),
        pytest.param("ff 14", False, id="a call that is cut before its last operand"),
    ],
)
def test_calls_are_told_from_other_instructions(code: str, is_call: bool) -> None:
    """Encodings as an assembler writes them."""
    assert ends_in_call(bytes.fromhex("90" * 7 + code)[-7:]) == is_call


TRAMPOLINES: Final = """
import os
def deep(levels):
    return deep(levels - 1) if levels else sorted([1, 2], key=inner)
def inner(number):
    os.read(0, 1)
deep(20)
"""


@pytest.mark.parametrize("name", ["3.12-pyenv", "3.13-pyenv", "3.14-debian"])
def test_python_functions_under_its_trampolines_are_each_a_frame(name: str) -> None:
    """With `-X perf`, CPython calls each function through a piece of code that it has made for it."""
    try:
        python = command(name)
    except NotObtainable as error:
        pytest.skip(str(error))
    with waiting(*python, "-X", "perf", "-c", TRAMPOLINES) as process:
        memory_map = MemoryMap(process.pid)
        with traced(reading_thread(process)) as thread:
            found = Unwinder().unwind(thread.snapshot(), memory_map)
        functions = names(found, memory_map).count("[code without a file]")
    assert functions == 1 + 21 + 1, "the module, deep from 20 to 0, inner"
    assert (found.reason, found.guesses) == (None, 0)


def test_any_bytes_are_a_call_or_not() -> None:
    for first in range(256):
        for second in range(256):
            assert ends_in_call(bytes((0x90, 0x90, 0xFF, first, second, 0xFF, first))) in (True, False)
