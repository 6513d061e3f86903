# SPDX-License-Identifier: Apache-2.0
"""Programs stopped in the middle: compiled here, run to a read of standard input, and looked at through ptrace(2)."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuheap.stacks.snapshot import Registers, Snapshot
from tests.waiting import DEADLINE_SECONDS

STOP: Final = """
/* Waits for a byte of standard input, without a function of the C library in between. */
__attribute__((noinline, used)) static long stop(void)
{
    char byte;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(0L), "D"(0L), "S"(&byte), "d"(1L) : "rcx", "r11", "memory");
    return result;
}
"""

STACK_BYTES: Final = 64 << 10
RED_ZONE_BYTES: Final = 128
_READ_FROM_INPUT: Final = "0 0x0 "
"""How /proc/PID/syscall begins then: the number of read(2), and its first argument."""

_PTRACE_SINGLESTEP: Final = 9
_PTRACE_GETREGS: Final = 12
_PTRACE_DETACH: Final = 17
_PTRACE_SEIZE: Final = 0x4206
_PTRACE_INTERRUPT: Final = 0x4207
_NAMES: Final = [
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
]
"""struct user_regs_struct of sys/user.h"""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long


def compiled(folder: Path, name: str, source: str, *command: str) -> Path:
    """A program of this source, with `stop()` for it to call. The command is the compiler and its options."""
    text = folder / f"{name}.{'cpp' if '++' in command[0] else 'c'}"
    text.write_text(source.replace("STOP", STOP, 1))
    program = folder / name
    first = [option for option in command if not option.startswith("-l")]
    libraries = [option for option in command if option.startswith("-l")]
    subprocess.run([*first, "-o", program, text, *libraries], check=True)
    return program


@contextmanager
def waiting(*command: Path | str) -> Iterator[subprocess.Popen[bytes]]:
    """The program once it reads standard input. Ended with the block."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(_reads_input(thread) for thread in Path(f"/proc/{process.pid}/task").iterdir()):
            assert process.poll() is None, "the program ended before it was to be looked at"
            assert time.monotonic() < deadline, "the program never reads its input"
            os.sched_yield()
        yield process
    finally:
        process.kill()
        process.communicate()


def _reads_input(thread: Path) -> bool:
    try:
        return (thread / "syscall").read_text().startswith(_READ_FROM_INPUT)
    except OSError:
        return False


def reading_thread(process: subprocess.Popen[bytes]) -> int:
    """The thread that reads standard input."""
    return next(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir() if _reads_input(task))


class Traced:
    """A thread under ptrace(2), stopped."""

    def __init__(self, tid: int) -> None:
        self.tid = tid

    def registers(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * len(_NAMES))()
        _ptrace(_PTRACE_GETREGS, self.tid, data=ctypes.addressof(values))
        return dict(zip(_NAMES, values, strict=True))

    def memory(self, address: int, size: int) -> bytes:
        """As much of it as there is."""
        fd = os.open(f"/proc/{self.tid}/mem", os.O_RDONLY)
        try:
            return os.pread(fd, size, address)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def step(self) -> None:
        """One instruction."""
        _ptrace(_PTRACE_SINGLESTEP, self.tid)
        _, status = os.waitpid(self.tid, 0x40000000)  # __WALL
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, hex(status)

    def snapshot(self, size: int = STACK_BYTES) -> Snapshot:
        """With the red zone, as the thread may be anywhere."""
        registers = self.registers()
        begin = registers["rsp"] - RED_ZONE_BYTES
        return Snapshot(
            registers=Registers(**{name: registers[name] for name in Registers.__dataclass_fields__}),
            stack=self.memory(begin, size),
            stack_address=begin,
        )


@contextmanager
def traced(tid: int) -> Iterator[Traced]:
    """Stopped within the block."""
    _ptrace(_PTRACE_SEIZE, tid)
    _ptrace(_PTRACE_INTERRUPT, tid)
    os.waitpid(tid, 0x40000000)  # __WALL
    try:
        yield Traced(tid)
    finally:
        _ptrace(_PTRACE_DETACH, tid)


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _LIBC.ptrace(request, tid, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace {request}: {os.strerror(code)}")
