# SPDX-License-Identifier: Apache-2.0
"""DWARF expressions: results worked out by hand from the standard's words, and what stops a hostile one."""

import pytest

from gpuheap.stacks.dwarf import Malformed
from gpuheap.stacks.expressions import NotKnown, evaluate

PROCEDURE_LINKAGE = bytes.fromhex("77 08 80 00 3f 1a 3b 2a 33 24 22")
"""rsp + 8 + (((rip & 15) >= 11) << 3): what GNU ld writes for each entry of .plt."""


def read(address: int, size: int) -> bytes | None:
    """Memory that holds 01 02 03 ... at 0x1000."""
    return bytes(range(1, 17))[address - 0x1000 :][:size] if 0x1000 <= address <= 0x1010 - size else None


@pytest.mark.parametrize(("instruction", "frame"), [(0x4010, 0x7008), (0x401A, 0x7008), (0x401B, 0x7010)])
def test_the_second_half_of_a_linkage_entry_has_pushed_a_word(instruction: int, frame: int) -> None:
    assert evaluate(PROCEDURE_LINKAGE, {7: 0x7000, 16: instruction}, read) == frame


@pytest.mark.parametrize(
    ("code", "result"),
    [
        pytest.param("08 05 1f", 2**64 - 5, id="neg"),
        pytest.param("09 fb 19", 5, id="abs"),
        pytest.param("09 f9 32 1b", 2**64 - 3, id="div rounds towards zero"),
        pytest.param("37 33 1d", 1, id="mod"),
        pytest.param("09 f0 32 26", 2**64 - 4, id="shra keeps the sign"),
        pytest.param("09 f0 32 25", (2**64 - 16) >> 2, id="shr does not"),
        pytest.param("31 08 40 24", 0, id="shl by all bits"),
        pytest.param("30 20", 2**64 - 1, id="not"),
        pytest.param("09 ff 31 2d", 1, id="lt is signed"),
        pytest.param("0a 00 10 06", 0x0807060504030201, id="deref"),
        pytest.param("0a 00 10 94 02", 0x0201, id="deref_size"),
        pytest.param("31 32 33 17", 2, id="rot brings the second to the top"),
        pytest.param("31 32 33 15 02", 1, id="pick"),
        pytest.param("31 32 14", 1, id="over"),
        pytest.param("31 32 16 1c", 1, id="swap"),
        pytest.param("31 28 01 00 35 32", 2, id="bra jumps if it is not zero"),
        pytest.param("34 2f 01 00 35", 4, id="skip"),
        pytest.param("92 07 7f", 0x6FFF, id="bregx"),
        pytest.param("31 23 80 01", 129, id="plus_uconst"),
        pytest.param("0c ff ff ff ff", 0xFFFFFFFF, id="const4u"),
        pytest.param("11 7e 32 1e", 2**64 - 4, id="consts"),
    ],
)
def test_operations_are_those_of_the_standard(code: str, result: int) -> None:
    assert evaluate(bytes.fromhex(code), {7: 0x7000}, read) == result


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("2f fd ff", id="it never ends"),
        pytest.param("31 " + "12 " * 100, id="too many numbers"),
        pytest.param("22", id="too few numbers"),
        pytest.param("", id="nothing"),
        pytest.param("31 30 1b", id="divided by zero"),
        pytest.param("2f ff 7f", id="a jump out of it"),
        pytest.param("0e 01", id="it is cut"),
        pytest.param("e0", id="not in the standard"),
        pytest.param("31 94 09", id="nine bytes of memory"),
        pytest.param("10 " + "80 " * 20, id="a number without end"),
    ],
)
def test_a_wrong_expression_is_an_error(code: str) -> None:
    with pytest.raises(Malformed):
        evaluate(bytes.fromhex(code), {}, read)


@pytest.mark.parametrize("code", [pytest.param("73 00", id="register"), pytest.param("30 06", id="memory")])
def test_what_was_not_recorded_is_not_made_up(code: str) -> None:
    with pytest.raises(NotKnown):
        evaluate(bytes.fromhex(code), {}, read)
