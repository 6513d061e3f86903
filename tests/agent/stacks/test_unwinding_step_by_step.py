# SPDX-License-Identifier: Apache-2.0
"""The unwound stack at every instruction of real programs, against the calls and returns that were seen to run."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.unreported_frames import ends_in_call
from gpuheap.stacks.unwinder import Unwinder, Unwound

from .stopped import Traced, compiled, reading_thread, traced, waiting

MAX_STEPS: Final = 50_000
MAX_WRONG: Final = 10

LIBRARY_CALLS: Final = """
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
STOP
static int compare(const void *left, const void *right)
{
    char *room = alloca(16 + *(const int *)left);
    memset(room, *(const int *)right, 16);
    return *(const int *)left - *(const int *)right + room[3];
}
/* The first call of each goes through the linkage table and the dynamic linker, the last into the kernel's code. */
__attribute__((noinline)) long work(int *numbers)
{
    qsort(numbers, 3, sizeof(*numbers), compare);
    return time(0) + numbers[0]; /* clock_gettime would wait for a second in which the clock is not set */
}
int main(void)
{
    int numbers[] = {3, 1, 2};
    stop();
    return work(numbers) + stop();
}
"""


class Calls:
    """The stack as the processor builds it: a return address more with each call, one fewer with each return."""

    def __init__(self, before: Unwound) -> None:
        self.returns = [address + 1 for address in before.addresses[1:]]

    def step(self, thread: Traced) -> None:
        before = thread.registers()
        code = thread.memory(before["rip"], 8)
        thread.step()
        after = thread.registers()
        pushed = int.from_bytes(thread.memory(after["rsp"], 8), "little")
        size = pushed - before["rip"]
        if (
            after["rsp"] == before["rsp"] - 8
            and 2 <= size <= 7
            and ends_in_call(bytes(7 - size) + code[:size])
        ):
            self.returns.insert(0, pushed)
        elif code.startswith((b"\xc3", b"\xf2\xc3", b"\xf3\xc3", b"\xc2")):
            assert after["rip"] == self.returns[0], "a return went elsewhere than to its call"
            del self.returns[0]

    def expected(self, instruction: int) -> tuple[int, ...]:
        return instruction, *(address - 1 for address in self.returns)


def _wrong_steps(program: Path) -> tuple[int, list[str]]:
    """Steps between the two reads of standard input, and those at which the unwound stack was another."""
    wrong: list[str] = []
    with waiting(program) as process, traced(reading_thread(process)) as thread:
        memory_map = MemoryMap(process.pid)
        unwinder = Unwinder()
        calls = Calls(unwinder.unwind(thread.snapshot(), memory_map))
        _go_on(process)
        thread.step()  # the read itself, which begins again
        for count in range(MAX_STEPS):
            if len(wrong) > MAX_WRONG:
                return count, wrong
            calls.step(thread)
            instruction = thread.registers()["rip"]
            if _reads_again(thread, instruction):
                return count, wrong
            found = unwinder.unwind(thread.snapshot(), memory_map)
            if found.addresses != calls.expected(instruction) or found.reason is not None:
                wrong.append(_described(instruction, memory_map, found, calls.expected(instruction)))
    raise AssertionError(f"no second read within {MAX_STEPS} steps")


def _go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b".")
    process.stdin.flush()


def _reads_again(thread: Traced, instruction: int) -> bool:
    registers = thread.registers()
    return thread.memory(instruction, 2) == b"\x0f\x05" and registers["rax"] == 0 and registers["rdi"] == 0


def _described(instruction: int, memory_map: MemoryMap, found: Unwound, expected: tuple[int, ...]) -> str:
    region = memory_map.find(instruction)
    place = region.address_as_linked(instruction) if region else None
    where = f"{region.path if region else '?'}+{place or 0:#x}"
    return f"{where}: {[hex(a) for a in found.addresses]}, {found.reason}; ran: {[hex(a) for a in expected]}"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("gcc", "-O2", "-fomit-frame-pointer", "-Wl,-z,lazy"), id="linked lazily"),
        pytest.param(("gcc", "-O2", "-fcf-protection", "-Wl,-z,lazy"), id="with .plt.sec"),
        pytest.param(("gcc", "-O0", "-no-pie", "-s"), id="at fixed addresses, stripped"),
        pytest.param(("gcc", "-O2", "-static"), id="static"),
        pytest.param(("gcc", "-O2", "-static-pie"), id="static, position-independent"),
        pytest.param(("clang", "-O2", "-fuse-ld=bfd"), id="clang"),
    ],
)
def test_each_instruction_of_library_calls_has_its_stack(options: tuple[str, ...], tmp_path: Path) -> None:
    steps, wrong = _wrong_steps(compiled(tmp_path, "program", LIBRARY_CALLS, *options))
    assert steps > 100
    assert wrong == []
