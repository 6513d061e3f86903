# SPDX-License-Identifier: Apache-2.0
from gpuheap.heap.losses import loss_notes, with_zeros


def test_only_losses_that_occurred_are_noted() -> None:
    names = [
        note.partition(":")[2].split(":")[0]
        for note in loss_notes({"ring_full": 0, "stacks_full": 1, "fault": 1200})
    ]
    assert names == [" fault, 1,200 times", " stacks_full, 1 time"]


def test_a_loss_is_noted_with_what_it_means() -> None:
    (note,) = loss_notes({"unknown_release": 3})
    assert note.startswith("lost or blurred: unknown_release, 3 times: a memory handle was released that")


def test_a_reason_without_words_is_noted_by_its_name() -> None:
    assert loss_notes({"of_tomorrow": 1}) == ("lost or blurred: of_tomorrow, 1 time",)


def test_every_known_reason_has_a_number_from_the_start() -> None:
    counts = with_zeros({"fault": 7, "of_tomorrow": 1})
    assert (counts["fault"], counts["of_tomorrow"], counts["spill_full"]) == (7, 1, 0)
