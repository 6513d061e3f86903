# SPDX-License-Identifier: Apache-2.0
"""What the agent frees itself and what it keeps beyond the kernel's table, event by event, counted by hand."""

import pytest

from gpuheap.tracer import abi, releases
from gpuheap.tracer.releases import Released, Releases, SiteKey

SPILL, FREE, KEEP = abi.EventType.SPILL, abi.EventType.SPILL_FREE, abi.EventType.SPILL_KEEP
NONE_ENDED: set[int] = set()


def site(image: int = 1, stack: int = 100) -> SiteKey:
    return SiteKey(stack=stack, native=0, image=image, tid=5, device=0, kind=0, call=2)


def event(
    kind: abi.EventType, address: int, size: int = 0, *, image: int = 1, owner: int = 0, space: int = 0
) -> abi.SpillEvent:
    return abi.SpillEvent(
        type=kind,
        key=abi.LiveKey(address=address, image=image, space=space),
        value=abi.LiveValue(bytes=size, site=abi.Site(*site(image)), owner=owner),
    )


def after(*events: abi.SpillEvent) -> Releases:
    made = Releases()
    for one in events:
        made.spill(one, NONE_ENDED)
    return made


def test_what_is_added_sums_up_by_site_with_the_part_that_went_at_the_exit() -> None:
    made = Releases()
    made.add(site(), 700, at_exit=True)
    made.add(site(), 30, at_exit=False)
    made.add(site(stack=200), 4, at_exit=False)
    assert made.of(site()) == Released(bytes=730, objects=2, exit_bytes=700, exit_objects=1)
    assert made.of(site(stack=200)) == Released(bytes=4, objects=1)
    assert made.of(site(image=2)) == Released()


@pytest.mark.parametrize(
    ("events", "released", "unknown"),
    [
        ([event(SPILL, 1, 700)], (0, 0), 0),
        ([event(SPILL, 1, 700), event(FREE, 1)], (700, 1), 0),
        ([event(SPILL, 1, 700), event(FREE, 1), event(KEEP, 1)], (0, 0), 0),
        ([event(SPILL, 1, 700), event(FREE, 1), event(KEEP, 1), event(FREE, 1)], (700, 1), 0),
        ([event(SPILL, 1, 700), event(FREE, 2)], (0, 0), 1),
        ([event(SPILL, 1, 700), event(FREE, 2), event(KEEP, 2)], (0, 0), 0),
        ([event(SPILL, 1, 700), event(FREE, 1, space=3)], (0, 0), 1),  # the same number, of another kind
        ([event(SPILL, 1, 700), event(FREE, 1, image=2)], (0, 0), 1),  # of another process
        ([event(SPILL, 1, 700), event(FREE, 1), event(FREE, 1)], (700, 1), 1),
        # Two threads free the same: the driver takes one of them.
        ([event(SPILL, 1, 700), event(FREE, 1), event(FREE, 1), event(KEEP, 1)], (700, 1), 0),
        ([event(SPILL, 1, 700), event(FREE, 1), event(FREE, 1), event(KEEP, 1), event(KEEP, 1)], (0, 0), 0),
        # An address that comes again without a free was freed unseen.
        ([event(SPILL, 1, 700), event(SPILL, 1, 30)], (700, 1), 0),
        ([event(SPILL, 1, 700), event(SPILL, 1, 30), event(FREE, 1)], (730, 2), 0),
        # A free whose address another thread was given before its return was seen.
        ([event(SPILL, 1, 700), event(FREE, 1), event(SPILL, 1, 30)], (700, 1), 0),
        ([event(SPILL, 1, 700), event(FREE, 1), event(SPILL, 1, 30), event(FREE, 1)], (730, 2), 0),
    ],
)
def test_frees_of_what_is_beyond_the_kernels_table(
    events: list[abi.SpillEvent], released: tuple[int, int], unknown: int
) -> None:
    made = after(*events)
    one = made.of(site())
    assert (one.bytes, one.objects) == released
    assert made.unknown_frees == unknown


def test_the_end_of_a_process_frees_what_it_has_beyond_the_table_once() -> None:
    made = after(event(SPILL, 1, 700), event(SPILL, 2, 30), event(SPILL, 1, 4, image=2), event(FREE, 2))
    made.end({1}, {})
    made.end({1}, {})
    assert made.of(site()) == Released(bytes=730, objects=2, exit_bytes=700, exit_objects=1)
    assert made.of(site(image=2)) == Released()


def test_the_end_of_an_owner_frees_what_it_owned_and_that_is_no_exit() -> None:
    made = after(event(SPILL, 1, 700, owner=9), event(SPILL, 2, 30, owner=8), event(SPILL, 3, 4))
    made.end(set(), {9: 0})
    assert made.of(site()) == Released(bytes=700, objects=1)


def test_an_allocation_that_is_told_after_the_end_of_its_process_went_with_it() -> None:
    made = Releases()
    made.spill(event(SPILL, 1, 700), {1})
    assert made.of(site()) == Released(bytes=700, objects=1, exit_bytes=700, exit_objects=1)
    made.end({1}, {})
    assert made.of(site()).bytes == 700


def test_beyond_its_limit_an_allocation_is_counted_and_stays_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "SPILL_LIMIT", 2)
    made = after(*(event(SPILL, address, 10) for address in (1, 2, 3)))
    assert made.spill_full == 1
    made.spill(event(FREE, 3), NONE_ENDED)
    assert made.of(site()) == Released(), "it is not known any more"


def test_what_is_forgotten_has_released_nothing() -> None:
    made = after(event(SPILL, 1, 700), event(SPILL, 1, 4, image=2))
    made.end({1, 2}, {})
    made.forget({1})
    assert made.of(site()) == Released()
    assert made.of(site(image=2)).bytes == 4
