# SPDX-License-Identifier: Apache-2.0
"""A thread at one moment: its registers, and a copy of its stack. Where it comes from is not known here."""

import struct
from dataclasses import dataclass
from typing import Final

_WORD: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """Of x86-64. Those that a call may change are known only where a signal interrupted the code."""

    rip: int
    rsp: int
    rbp: int
    rbx: int
    r12: int
    r13: int
    r14: int
    r15: int

    def by_number(self) -> dict[int, int]:
        """By the numbers that DWARF gives them (System V ABI for x86-64, figure 3.36)."""
        return {
            3: self.rbx,
            6: self.rbp,
            7: self.rsp,
            12: self.r12,
            13: self.r13,
            14: self.r14,
            15: self.r15,
            16: self.rip,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What unwinding starts from."""

    registers: Registers
    stack: bytes
    """Memory from the stack pointer upwards."""

    stack_address: int | None = None
    """Where the copy begins, if that is not the stack pointer: within functions that call none, up to 128 bytes below
    it are in use (the red zone)."""

    more: tuple[tuple[int, bytes], ...] = ()
    """Copies of other stacks of the thread, with their addresses: a signal may have come on a stack of its own."""

    original_returns: tuple[int, ...] = ()
    """Return addresses that return probes have replaced by the kernel's trampoline, innermost first."""

    @property
    def begin(self) -> int:
        return self.registers.rsp if self.stack_address is None else self.stack_address

    def read(self, address: int, size: int) -> bytes | None:
        """None where nothing was copied."""
        for begin, copy in ((self.begin, self.stack), *self.more):
            if 0 <= address - begin <= len(copy) - size:
                return copy[address - begin : address - begin + size]
        return None

    def word(self, address: int) -> int | None:
        """Eight bytes as a number; None where nothing was copied."""
        place = address - self.begin
        if 0 <= place <= len(self.stack) - 8:
            word: int = _WORD.unpack_from(self.stack, place)[0]
            return word
        found = self.read(address, 8) if self.more else None
        return int.from_bytes(found, "little") if found is not None else None
