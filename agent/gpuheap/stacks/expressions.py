# SPDX-License-Identifier: Apache-2.0
"""DWARF expressions as unwind information has them (DWARF 5, section 2.5), for 64-bit addresses.

Signal frames use them to find the saved registers, procedure linkage tables to tell which half of an entry has run.
Operations that need debug information are not among them.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Final

from .dwarf import MISREAD, Malformed, signed_leb, unsigned_leb

MAX_STEPS: Final = 1000
MAX_DEPTH: Final = 64
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63

Read = Callable[[int, int], bytes | None]
"""Memory of the thread by address and size; None where it is not known."""


class NotKnown(Exception):
    """The expression needs a register or memory that the snapshot does not hold."""


_CONSTANTS: Final = {  # DW_OP_addr, DW_OP_const1u to DW_OP_const8s: bytes, signed
    0x03: (8, False),
    0x08: (1, False),
    0x09: (1, True),
    0x0A: (2, False),
    0x0B: (2, True),
    0x0C: (4, False),
    0x0D: (4, True),
    0x0E: (8, False),
    0x0F: (8, True),
}


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _SIGN else value


def _divided(left: int, right: int) -> int:
    left, right = _signed(left), _signed(right)
    if not right:
        raise Malformed("a division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    if not right:
        raise Malformed("a division by zero")
    return left % right


def _compared(compare: Callable[[int, int], bool]) -> Callable[[int, int], int]:
    return lambda left, right: int(compare(_signed(left), _signed(right)))


_BINARY: Final[dict[int, Callable[[int, int], int]]] = {
    0x1A: operator.and_,
    0x1B: _divided,
    0x1C: operator.sub,
    0x1D: _modulo,
    0x1E: operator.mul,
    0x21: operator.or_,
    0x22: operator.add,
    0x24: lambda left, right: left << right if right < 64 else 0,
    0x25: lambda left, right: left >> right if right < 64 else 0,
    0x26: lambda left, right: _signed(left) >> min(right, 63),
    0x27: operator.xor,
    0x29: _compared(operator.eq),
    0x2A: _compared(operator.ge),
    0x2B: _compared(operator.gt),
    0x2C: _compared(operator.le),
    0x2D: _compared(operator.lt),
    0x2E: _compared(operator.ne),
}
_UNARY: Final[dict[int, Callable[[int], int]]] = {
    0x19: lambda value: abs(_signed(value)),
    0x1F: operator.neg,
    0x20: operator.invert,
}


def evaluate(expression: bytes, registers: Mapping[int, int], read: Read, initial: int | None = None) -> int:
    """The number on top when it is done; `initial` lies on the stack when it begins. Raises Malformed, NotKnown."""
    machine = _Machine(expression, registers, read)
    if initial is not None:
        machine.stack.append(initial)
    try:
        return machine.run()
    except MISREAD as error:
        raise Malformed(f"expression {expression[:64].hex()}: {error}") from error


class _Machine:
    def __init__(self, code: bytes, registers: Mapping[int, int], read: Read) -> None:
        self.stack: list[int] = []
        self._code = code
        self._at = 0
        self._registers = registers
        self._read = read

    def run(self) -> int:
        for _ in range(MAX_STEPS):
            if self._at >= len(self._code):
                return self.stack[-1]
            operation = self._code[self._at]
            self._at += 1
            self._step(operation)
            if len(self.stack) > MAX_DEPTH:
                raise Malformed(f"more than {MAX_DEPTH} numbers are on the stack")
        raise Malformed(f"it takes more than {MAX_STEPS} steps")

    def _push(self, value: int) -> None:
        self.stack.append(value & _MASK)

    def _step(self, operation: int) -> None:
        if operation in _BINARY:
            right, left = self.stack.pop(), self.stack.pop()
            self._push(_BINARY[operation](left, right))
        elif operation in _UNARY:
            self._push(_UNARY[operation](self.stack.pop()))
        elif 0x30 <= operation <= 0x4F:  # DW_OP_lit0 to DW_OP_lit31
            self._push(operation - 0x30)
        elif 0x70 <= operation <= 0x8F:  # DW_OP_breg0 to DW_OP_breg31
            self._push(self._register(operation - 0x70) + self._signed_leb())
        elif operation in _CONSTANTS:
            size, signed = _CONSTANTS[operation]
            self._push(int.from_bytes(self._bytes(size), "little", signed=signed))
        else:
            self._other(operation)

    def _other(self, operation: int) -> None:
        match operation:
            case 0x06:  # DW_OP_deref
                self._push(self._memory(self.stack.pop(), 8))
            case 0x94:  # DW_OP_deref_size
                self._push(self._memory(self.stack.pop(), self._bytes(1)[0]))
            case 0x10:  # DW_OP_constu
                self._push(self._unsigned_leb())
            case 0x11:  # DW_OP_consts
                self._push(self._signed_leb())
            case 0x23:  # DW_OP_plus_uconst
                self._push(self.stack.pop() + self._unsigned_leb())
            case 0x92:  # DW_OP_bregx
                self._push(self._register(self._unsigned_leb()) + self._signed_leb())
            case 0x28:  # DW_OP_bra
                distance = self._distance()
                self._jump(distance if self.stack.pop() else 0)
            case 0x2F:  # DW_OP_skip
                self._jump(self._distance())
            case 0x96:  # DW_OP_nop
                pass
            case _:
                self._rearranged(operation)

    def _rearranged(self, operation: int) -> None:
        stack = self.stack
        match operation:
            case 0x12:  # DW_OP_dup
                stack.append(stack[-1])
            case 0x13:  # DW_OP_drop
                stack.pop()
            case 0x14:  # DW_OP_over
                stack.append(stack[-2])
            case 0x15:  # DW_OP_pick
                stack.append(stack[-1 - self._bytes(1)[0]])
            case 0x16:  # DW_OP_swap
                stack[-1], stack[-2] = stack[-2], stack[-1]
            case 0x17:  # DW_OP_rot
                stack[-1], stack[-2], stack[-3] = stack[-2], stack[-3], stack[-1]
            case _:
                raise Malformed(f"operation {operation:#x} is not known")

    def _register(self, number: int) -> int:
        value = self._registers.get(number)
        if value is None:
            raise NotKnown(f"register {number}")
        return value

    def _memory(self, address: int, size: int) -> int:
        if not 0 < size <= 8:
            raise Malformed(f"a read of {size} bytes")
        found = self._read(address, size)
        if found is None:
            raise NotKnown(f"memory at {address:#x}")
        return int.from_bytes(found, "little")

    def _bytes(self, count: int) -> bytes:
        found = self._code[self._at : self._at + count]
        if len(found) < count:
            raise Malformed("it ends within an operation")
        self._at += count
        return found

    def _distance(self) -> int:
        return int.from_bytes(self._bytes(2), "little", signed=True)

    def _jump(self, distance: int) -> None:
        self._at += distance
        if not 0 <= self._at <= len(self._code):
            raise Malformed("a jump leaves the expression")

    def _unsigned_leb(self) -> int:
        value, self._at = unsigned_leb(self._code, self._at)
        return value

    def _signed_leb(self) -> int:
        value, self._at = signed_leb(self._code, self._at)
        return value
