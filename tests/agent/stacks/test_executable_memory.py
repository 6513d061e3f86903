# SPDX-License-Identifier: Apache-2.0
"""The table by which the kernel side tells words that point into executable memory.

Expected: looked up here as bpf/stack_hash.bpf.h does it, against the regions themselves.
"""

import pytest

from gpuheap.stacks.executable_memory import (
    FACTOR_BITS,
    NO_WINDOW,
    PIECE_BITS,
    PLACES,
    WINDOW_BITS,
    ExecutableMemory,
    executable_memory,
)
from gpuheap.tracer import abi

PIECE = 1 << PIECE_BITS
PROGRAM, LIBRARY = (0x5555_5555_4000, 0x5555_5560_0000), (0x7F12_3400_1000, 0x7F12_5678_9000)


def holds(memory: ExecutableMemory, address: int) -> bool:
    number = address >> WINDOW_BITS
    window = memory.windows[(number * memory.factor >> FACTOR_BITS) & (PLACES - 1)]
    if window == NO_WINDOW or window >> 8 != number:
        return False
    piece = (window & 255) << (WINDOW_BITS - PIECE_BITS) | address >> PIECE_BITS & (
        1 << WINDOW_BITS - PIECE_BITS
    ) - 1
    return bool(memory.bits[piece // 8] >> piece % 8 & 1)


def test_all_of_a_region_and_no_more_than_its_last_piece_is_in_it() -> None:
    memory = executable_memory([PROGRAM, LIBRARY])
    assert memory is not None
    for begin, end in (PROGRAM, LIBRARY):
        inside = [begin, (begin + end) // 2, end - 1]
        outside = [(begin & -PIECE) - 1, (end | PIECE - 1) + 1, begin - (8 << 30), begin + (8 << 30)]
        assert [holds(memory, address) for address in inside] == [True] * 3
        assert [holds(memory, address) for address in outside] == [False] * 4


def test_small_numbers_and_addresses_of_the_kernel_are_not_in_it() -> None:
    memory = executable_memory([PROGRAM, LIBRARY, (0xFFFF_FFFF_FF60_0000, 0xFFFF_FFFF_FF60_1000)])
    assert memory is not None
    assert not any(holds(memory, word) for word in (0, 1, 4096, 0xFFFF_FFFF_FF60_0000, 2**64 - 1))


def test_a_region_can_lie_across_two_windows() -> None:
    border = 0x7F12_0000_0000
    memory = executable_memory([(border - PIECE, border + PIECE)])
    assert memory is not None
    assert [holds(memory, border + place) for place in (-PIECE - 1, -PIECE, -1, 0, PIECE - 1, PIECE)] == [
        False, True, True, True, True, False,
    ]  # fmt: skip


def at_windows(*numbers: int) -> list[tuple[int, int]]:
    return [(number << WINDOW_BITS, (number << WINDOW_BITS) + PIECE) for number in numbers]


def test_windows_for_which_there_is_no_room_share_it_and_none_is_left_out() -> None:
    regions = at_windows(*range(100, 120))
    memory = executable_memory(regions)
    assert memory is not None
    assert all(holds(memory, begin) and holds(memory, end - 1) for begin, end in regions)
    assert not any(holds(memory, end) for _, end in regions)


@pytest.mark.parametrize("apart", [PLACES, 2 * PLACES, 4096])
def test_windows_whose_numbers_end_alike_do_not_take_each_others_place(apart: int) -> None:
    """Where programs, libraries and stacks lie is random: of twenty processes, one has such windows."""
    regions = at_windows(3, 3 + apart, 3 + 2 * apart)
    memory = executable_memory(regions)
    assert memory is not None
    assert all(holds(memory, begin) for begin, _ in regions)
    assert not any(holds(memory, end) for _, end in regions)


def test_memory_in_more_windows_than_there_are_places_is_no_table() -> None:
    assert executable_memory(at_windows(*range(1, PLACES + 2))) is None


def test_the_table_has_the_size_that_the_kernel_side_expects() -> None:
    memory = executable_memory([])
    assert memory is not None
    assert len(memory.windows) == abi.TEXT_PLACES
    assert len(memory.bits) == abi.TEXT_WINDOWS * abi.TEXT_WORDS * 8
    assert (WINDOW_BITS, PIECE_BITS) == (abi.TEXT_WINDOW_BITS, abi.TEXT_PIECE_BITS)
    assert FACTOR_BITS == abi.TEXT_FACTOR_BITS
