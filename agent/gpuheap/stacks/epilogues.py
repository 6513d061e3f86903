# SPDX-License-Identifier: Apache-2.0
"""How code that does not describe its frames leaves them, if it does so right after a call returns.

Trampolines are like that: Python's for `perf` (Objects/asm_trampoline.S), linkers' and libraries' stubs. Their last
instructions say where the return address is, without any doubt.
"""

from typing import Final

from .snapshot import Snapshot

CODE_BYTES: Final = 32
MAX_INSTRUCTIONS: Final = 12
_FRAME_POINTER: Final = 6
_STACK_POINTER: Final = 7
_INSTRUCTION_POINTER: Final = 16
_POPPED: Final = (0, 2, 1, 3, 7, 6, 5, 4)
"""DWARF's numbers of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi: the order of instructions."""

_ADD_BYTE: Final = bytes.fromhex("4883c4")
_ADD_WORD: Final = bytes.fromhex("4881c4")
_NOTHING: Final = (b"\x90", b"\x66\x90", bytes.fromhex("f30f1efa"))  # nop, endbr64
_RETURN: Final = (b"\xc3", b"\xf3\xc3", b"\xf2\xc3")

Registers = dict[int, int]


def left(code: bytes, snapshot: Snapshot, registers: Registers) -> Registers | None:
    """Registers in the caller, if this code does nothing but leave its frame and return."""
    found = registers.copy()
    for _ in range(MAX_INSTRUCTIONS):
        if code.startswith(_RETURN):
            back = snapshot.word(found[_STACK_POINTER])
            if back is None:
                return None
            found[_STACK_POINTER] += 8
            found[_INSTRUCTION_POINTER] = back
            return found
        size = _step(code, snapshot, found)
        if not size:
            return None
        code = code[size:]
    return None


def _step(code: bytes, snapshot: Snapshot, registers: Registers) -> int:
    """One instruction and its length; 0 if it is another, or needs what is not there."""
    for nothing in _NOTHING:
        if code.startswith(nothing):
            return len(nothing)
    if code.startswith(_ADD_BYTE) and len(code) > 3:
        registers[_STACK_POINTER] += int.from_bytes(code[3:4], "little", signed=True)
        return 4
    if code.startswith(_ADD_WORD) and len(code) > 6:
        registers[_STACK_POINTER] += int.from_bytes(code[3:7], "little", signed=True)
        return 7
    if code.startswith(b"\xc9") and _FRAME_POINTER in registers:  # leave
        registers[_STACK_POINTER] = registers[_FRAME_POINTER]
        return 1 if _pop(_FRAME_POINTER, snapshot, registers) else 0
    wide = code.startswith(b"\x41")
    operation = code[wide : wide + 1]
    if operation and 0x58 <= operation[0] <= 0x5F:  # pop
        number = 8 + operation[0] - 0x58 if wide else _POPPED[operation[0] - 0x58]
        return 1 + wide if number != _STACK_POINTER and _pop(number, snapshot, registers) else 0
    return 0


def _pop(number: int, snapshot: Snapshot, registers: Registers) -> bool:
    value = snapshot.word(registers[_STACK_POINTER])
    if value is None:
        return False
    registers[number] = value
    registers[_STACK_POINTER] += 8
    return True
