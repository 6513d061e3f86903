# SPDX-License-Identifier: Apache-2.0
"""Which holdings an out-of-memory failure is given, from totals and moments made up here."""

from gpuheap.heap.model import Holding, OutOfMemory, Process
from gpuheap.heap.model import Site as NamedSite
from gpuheap.tracer import abi
from gpuheap.tracer.memory_failures import KEPT, MemoryFailures
from gpuheap.tracer.releases import Releases, SiteKey


def site(stack: int, image: int = 1) -> abi.Site:
    return abi.Site(stack=stack, image=image, tid=5, device=0, kind=0, call=2)


def event(moment: int, asked: int = 99, image: int = 1) -> abi.MemoryEvent:
    return abi.MemoryEvent(moment=moment, asked=asked, site=site(900, image))


def totals(allocated: int, freed: int = 0, *, moment: int = 0, held: int = 0) -> abi.Totals:
    """Objects of 10 bytes each."""
    return abi.Totals(
        allocated_bytes=allocated,
        allocated_objects=allocated // 10,
        freed_bytes=freed,
        freed_objects=freed // 10,
        moment=moment,
        held_bytes=held,
        held_objects=held // 10,
    )


def name(key: SiteKey) -> NamedSite:
    process = Process(pid=key.image, start_ns=1, name="made up")
    return NamedSite(process=process, thread_id=key.stack, stack=())


def found(failures: MemoryFailures) -> tuple[OutOfMemory, ...]:
    return failures.named(name, lambda _: True)


def held(failure: OutOfMemory) -> dict[int, Holding]:
    """By the site's stack."""
    return {site.thread_id: holding for site, holding in failure.holdings.items()}


def test_a_site_that_has_not_changed_since_the_failure_holds_what_it_held_then() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    new = failures.unexamined
    failures.examine([(site(100), totals(300, 100, moment=2, held=50))], Releases())
    assert (new, failures.unexamined) == (True, False)
    (failure,) = found(failures)
    assert (failure.asked_bytes, failure.at_unix_ns, failure.exact) == (99, 7, True)
    assert held(failure) == {100: Holding(bytes=200, objects=20)}


def test_a_site_that_has_changed_since_has_what_was_kept_of_it() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    failures.examine([(site(100), totals(300, 300, moment=3, held=200))], Releases())
    assert held(found(failures)[0]) == {100: Holding(bytes=200, objects=20)}


def test_a_site_that_held_nothing_then_is_left_out() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    rows = [(site(100), totals(70, 70)), (site(200), totals(40, moment=3, held=0)), (site(300), totals(10))]
    failures.examine(rows, Releases())
    assert held(found(failures)[0]) == {300: Holding(bytes=10, objects=1)}


def test_a_change_between_two_failures_makes_the_first_inexact() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    failures.failed(event(4), 8)
    failures.examine([(site(100), totals(300, 0, moment=4, held=200))], Releases())
    first, second = found(failures)
    assert (first.exact, second.exact) == (False, True)
    assert held(second) == {100: Holding(bytes=200, objects=20)}
    assert failures.blurred == 1


def test_what_the_agent_itself_has_freed_is_not_held() -> None:
    releases = Releases()
    releases.add(SiteKey.of(site(100)), 120, at_exit=False, objects=12)
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    failures.examine([(site(100), totals(300))], releases)
    assert held(found(failures)[0]) == {100: Holding(bytes=180, objects=18)}


def test_the_holdings_of_other_processes_are_theirs() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    failures.failed(event(4, image=2), 8)
    rows = [(site(100), totals(300)), (site(200, image=2), totals(40, moment=5, held=10))]
    failures.examine(rows, Releases())
    first, second = found(failures)
    assert (held(first), first.exact) == ({100: Holding(bytes=300, objects=30)}, True)
    assert (held(second), second.exact) == ({200: Holding(bytes=10, objects=1)}, False)


def test_sites_of_the_same_name_are_one_holding() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    rows = [(site(100), totals(300)), (site(200), totals(40))]
    failures.examine(rows, Releases())
    (failure,) = failures.named(lambda key: name(key._replace(stack=1)), lambda _: True)
    assert held(failure) == {1: Holding(bytes=340, objects=34)}


def test_the_last_ones_are_kept_oldest_first() -> None:
    failures = MemoryFailures()
    for at in range(KEPT + 2):
        failures.failed(event(at, asked=at), at)
        if at % 2:
            failures.examine([], Releases())
    assert [failure.asked_bytes for failure in found(failures)] == list(range(2, KEPT + 2))


def test_those_of_other_processes_are_left_out_and_those_of_forgotten_ones_dropped() -> None:
    failures = MemoryFailures()
    failures.failed(event(3), 7)
    failures.failed(event(4, image=2), 8)
    failures.examine([], Releases())
    wanted = failures.named(name, lambda one: one.process.pid == 2)
    assert [failure.site.process.pid for failure in wanted] == [2]
    failures.forget({2})
    assert [failure.site.process.pid for failure in found(failures)] == [1]
