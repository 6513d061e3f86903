# SPDX-License-Identifier: Apache-2.0
"""What the kernel side's copies say besides the memory in them. Addresses and places are counted by hand."""

import pytest

from gpuheap.stacks.unwinder import Ended, Unwound
from gpuheap.tracer.abi import SnapshotEvent
from gpuheap.tracer.snapshot_events import evaluations, snapshot_of


def event(*entries: int, all_entered: int = 1) -> SnapshotEvent:
    made = SnapshotEvent(entered=len(entries), all_entered=all_entered)
    made.entries[: len(entries)] = entries
    return made


def unwound(*stack_pointers: int, frames: int, reason: Ended | None = None) -> Unwound:
    return Unwound(addresses=tuple(range(frames)), reason=reason, stack_pointers=stack_pointers)


@pytest.mark.parametrize(
    ("entries", "found", "places"),
    [
        pytest.param([], unwound(100, 200, 300, frames=3), (), id="none"),
        pytest.param([250], unwound(100, 200, 300, frames=3), (1,), id="within the middle one"),
        pytest.param([200, 100], unwound(100, 200, 300, frames=3), (1, 2), id="at their beginnings"),
        pytest.param([150, 160], unwound(100, 200, 300, frames=3), (2,), id="two in one"),
        pytest.param([50, 300, 999], unwound(100, 200, 300, frames=3), (), id="beyond, and in the root"),
        pytest.param(
            [250],
            unwound(100, 200, 300, frames=2, reason=Ended.UNMAPPED),
            (0,),
            id="in the last that is known",
        ),
    ],
)
def test_a_frame_evaluates_python_when_an_entry_lies_in_it(
    entries: list[int], found: Unwound, places: tuple[int, ...]
) -> None:
    assert evaluations(event(*entries), found) == places


def test_where_not_all_entries_are_there_the_frames_are_not_known_by_them() -> None:
    assert evaluations(event(150, all_entered=0), unwound(100, 200, frames=2)) is None


def test_a_copy_has_the_addresses_that_return_probes_have_taken_and_no_stale_ones() -> None:
    made = SnapshotEvent(trampoline=0x7FFF0000, end=0x2000, pages=1, taken=3)
    made.registers.sp = 0x1FE0
    for number, (place, address) in enumerate([(0x1FE8, 11), (0x1FF0, 12), (0x5000, 13)]):
        made.returns[number].stack, made.returns[number].address = place, address
    words = [1, 0x7FFF0000, 2, 3]  # the second was replaced; the third was written again, after longjmp
    memory = bytes(0xFE0) + b"".join(word.to_bytes(8, "little") for word in words)
    found = snapshot_of(made, memory)
    assert [found.word(0x1FE0 + 8 * place) for place in range(5)] == [1, 11, 2, 3, None]


def test_a_copy_of_two_stacks_has_both_where_they_were() -> None:
    made = SnapshotEvent(end=0x2000, pages=1, other=0x9FF8, other_end=0xA000, other_pages=1)
    made.registers.sp = 0x1FF8
    memory = bytearray(5 * 4096)
    memory[0xFF8:0x1000] = (7).to_bytes(8, "little")
    memory[4 * 4096 + 0xFF8 :] = (8).to_bytes(8, "little")
    found = snapshot_of(made, bytes(memory))
    assert (found.word(0x1FF8), found.word(0x9FF8), found.word(0x2000)) == (7, 8, None)
