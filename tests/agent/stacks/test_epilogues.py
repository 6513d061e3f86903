# SPDX-License-Identifier: Apache-2.0
"""How code leaves its frame: instructions as an assembler writes them, with what they do worked out by hand."""

import struct
from typing import Final

import pytest

from gpuheap.stacks.epilogues import left
from gpuheap.stacks.snapshot import Registers, Snapshot

BASE: Final = 0x7FFF0000
SNAPSHOT: Final = Snapshot(
    registers=Registers(rip=0, rsp=BASE, rbp=BASE + 32, rbx=0, r12=0, r13=0, r14=0, r15=0),
    stack=struct.pack("<8Q", *(0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7)),
)


@pytest.mark.parametrize(
    ("code", "returns_to", "stack_pointer", "changed"),
    [
        pytest.param("c3", 0xA0, BASE + 8, {}, id="ret"),
        pytest.param("f3 c3", 0xA0, BASE + 8, {}, id="rep ret"),
        pytest.param("48 83 c4 10 c3", 0xA2, BASE + 24, {}, id="add $16,%rsp; ret"),
        pytest.param("48 81 c4 18 00 00 00 c3", 0xA3, BASE + 32, {}, id="add $24,%rsp; ret"),
        pytest.param("5b 41 5c c3", 0xA2, BASE + 24, {3: 0xA0, 12: 0xA1}, id="pop %rbx; pop %r12; ret"),
        pytest.param("5d c3", 0xA1, BASE + 16, {6: 0xA0}, id="pop %rbp; ret"),
        pytest.param("c9 c3", 0xA5, BASE + 48, {6: 0xA4}, id="leave; ret"),
        pytest.param("90 66 90 c3", 0xA0, BASE + 8, {}, id="nops; ret"),
    ],
)
def test_leaving_a_frame_is_followed(
    code: str, returns_to: int, stack_pointer: int, changed: dict[int, int]
) -> None:
    registers = SNAPSHOT.registers.by_number()
    assert left(bytes.fromhex(code), SNAPSHOT, registers) == registers | changed | {
        7: stack_pointer,
        16: returns_to,
    }


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("48 89 c3 c3", id="another instruction: mov %rax,%rbx"),
        pytest.param("48 83 c4", id="it is cut"),
        pytest.param("48 83 c4 78 c3", id="the stack ends before"),
        pytest.param("5c c3", id="pop %rsp"),
        pytest.param("90 " * 30, id="it does not return"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_not_only_leaving_is_not_followed(code: str) -> None:
    assert left(bytes.fromhex(code), SNAPSHOT, SNAPSHOT.registers.by_number()) is None
