# SPDX-License-Identifier: Apache-2.0
"""Frames of signals where the C library does not describe them, as musl does not: known by their code.

A handler returns to two instructions that call rt_sigreturn(2); the kernel has put the interrupted registers right
above (struct rt_sigframe in arch/x86/include/asm/sigframe.h).
"""

from typing import Final

from .snapshot import Snapshot

_MOV_RAX_15: Final = bytes.fromhex("48c7c00f000000")
_MOV_EAX_15: Final = bytes.fromhex("b80f000000")
_SYSCALL: Final = bytes.fromhex("0f05")
SIGNAL_RETURN: Final = (_MOV_RAX_15 + _SYSCALL, _MOV_EAX_15 + _SYSCALL)
SIGNAL_RETURN_BYTES: Final = 9

_REGISTERS: Final = 40
"""offsetof(ucontext_t, uc_mcontext.gregs)"""
_ORDER: Final = (8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16)
"""r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (struct sigcontext_64), by their DWARF numbers."""


def returns_from_signal(code: bytes) -> bool:
    """Whether this is the code that handlers return to."""
    return code.startswith(SIGNAL_RETURN)


def interrupted(snapshot: Snapshot, stack_pointer: int) -> dict[int, int] | None:
    """The registers at the moment of the signal; None where they were not copied."""
    registers = {}
    for place, number in enumerate(_ORDER):
        value = snapshot.word(stack_pointer + _REGISTERS + 8 * place)
        if value is None:
            return None
        registers[number] = value
    return registers
