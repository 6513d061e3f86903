# SPDX-License-Identifier: Apache-2.0
"""Where code that does not describe its frames may have been called from: code made at run time, old assembly.

Such code can keep a frame pointer; if not, a return address lies somewhere above the stack pointer. A word counts as
one if it leads behind a call instruction. Which of several is right is for the caller to find out.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from .memory_map import MemoryMap, NoFile
from .snapshot import Snapshot

MAX_WORDS: Final = 1024
MAX_CANDIDATES: Final = 16
_FRAME_POINTER: Final = 6
_STACK_POINTER: Final = 7
_INSTRUCTION_POINTER: Final = 16
_LONGEST_CALL: Final = 7

Registers = dict[int, int]


def candidates(
    snapshot: Snapshot, memory_map: MemoryMap, registers: Registers, *, exact: bool
) -> Iterator[Registers]:
    """Registers as they may be in a caller, the likeliest first.

    Code that no file describes is reached through a pointer: what lies behind a call of something else is most often
    left over from earlier calls. `exact`: the code has not called anything, so it may have just begun, or be a stub
    that makes no frame.
    """
    seen = list(islice(_places(snapshot, memory_map, registers, exact=exact), MAX_CANDIDATES))
    through_pointers = [_is_indirect(memory_map, one[_INSTRUCTION_POINTER]) for one in seen]
    if not exact:
        yield from (one for one, is_indirect in zip(seen, through_pointers, strict=True) if is_indirect)
        yield from (one for one, is_indirect in zip(seen, through_pointers, strict=True) if not is_indirect)
    else:
        yield from seen


def _places(
    snapshot: Snapshot, memory_map: MemoryMap, registers: Registers, *, exact: bool
) -> Iterator[Registers]:
    """By the frame pointer first, then from the stack pointer upwards."""
    stack_pointer, frame_pointer = registers[_STACK_POINTER], registers.get(_FRAME_POINTER)
    if exact and (back := snapshot.word(stack_pointer)) and is_behind_call(back, memory_map):
        yield registers | {_STACK_POINTER: stack_pointer + 8, _INSTRUCTION_POINTER: back}
    if frame_pointer is not None and frame_pointer >= stack_pointer:
        above = snapshot.word(frame_pointer)
        back = snapshot.word(frame_pointer + 8)
        if above is not None and back is not None and is_behind_call(back, memory_map):
            yield registers | {
                _FRAME_POINTER: above,
                _STACK_POINTER: frame_pointer + 16,
                _INSTRUCTION_POINTER: back,
            }
    for place in range(stack_pointer, stack_pointer + 8 * MAX_WORDS, 8):
        back = snapshot.word(place)
        if back is None:
            return
        if is_behind_call(back, memory_map):
            yield registers | {_STACK_POINTER: place + 8, _INSTRUCTION_POINTER: back}


def is_behind_call(address: int, memory_map: MemoryMap) -> bool:
    """Whether a file's code has a call right before this address."""
    return ends_in_call(_code_before(address, memory_map))


def _is_indirect(memory_map: MemoryMap, address: int) -> bool:
    return _ends_in_indirect_call(_code_before(address, memory_map))


def _code_before(address: int, memory_map: MemoryMap) -> bytes:
    region = memory_map.find(address)
    if region is None or not region.executable or isinstance(region.file, NoFile):
        return b""
    place = region.address_as_linked(address)
    if place is None or region.file.image is None:
        return b""
    return region.file.image.read(place - _LONGEST_CALL, _LONGEST_CALL)


def ends_in_call(code: bytes) -> bool:
    """Seven bytes of x86-64 code: `call` with a distance, or through a register or memory (FF /2) of any form."""
    return len(code) == _LONGEST_CALL and (code[-5] == 0xE8 or _ends_in_indirect_call(code))


def _ends_in_indirect_call(code: bytes) -> bool:
    return len(code) == _LONGEST_CALL and any(
        code[-size] == 0xFF and _is_call(code[-size + 1 :], size) for size in (2, 3, 4, 6, 7)
    )


def _is_call(operands: bytes, size: int) -> bool:
    """Whether an instruction of this size, which begins with FF, is a call with these operands."""
    mode, operation, base = operands[0] >> 6, operands[0] >> 3 & 7, operands[0] & 7
    if operation != 2:
        return False
    if mode == 3:
        return size == 2
    needs = 2 + (base == 4)
    if size < needs:
        return False
    if mode == 1:
        needs += 1
    elif mode == 2 or (base == 5 if base != 4 else operands[1] & 7 == 5):
        needs += 4
    return size == needs
