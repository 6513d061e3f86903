# SPDX-License-Identifier: Apache-2.0
"""Out-of-memory failures, with what each site of the process held at that moment.

The kernel side numbers these moments. Before a site changes for the first time after one, it keeps what the site held;
a site that has not changed since still holds it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gpuheap.heap.model import Holding, OutOfMemory
from gpuheap.heap.model import Site as NamedSite

from . import abi
from .releases import Releases, SiteKey

KEPT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    site: SiteKey
    asked: int
    at_unix_ns: int
    held: dict[SiteKey, tuple[int, int]]
    exact: bool


class MemoryFailures:
    """The last ones, oldest first."""

    def __init__(self) -> None:
        self._new: list[tuple[abi.MemoryEvent, int]] = []
        self._failures: list[_Failure] = []
        self.blurred = 0

    def failed(self, event: abi.MemoryEvent, at_unix_ns: int) -> None:
        self._new.append((event, at_unix_ns))

    @property
    def unexamined(self) -> bool:
        return bool(self._new)

    def examine(self, totals: Iterable[tuple[abi.Site, abi.Totals]], releases: Releases) -> None:
        """`totals` as they are now, soon after."""
        new, self._new = self._new[-KEPT:], []
        images = {event.site.image for event, _ in new}
        rows = [(SiteKey.of(site), sums) for site, sums in totals if site.image in images]
        for event, at in new:
            held: dict[SiteKey, tuple[int, int]] = {}
            exact = True
            for site, sums in rows:
                if site.image != event.site.image:
                    continue
                exact = exact and sums.moment <= event.moment
                size, objects = _held(sums, event.moment)
                gone, gone_objects = releases.before(site, event.moment)
                if size - gone or objects - gone_objects:
                    held[site] = (size - gone, objects - gone_objects)
            self.blurred += not exact
            self._failures.append(
                _Failure(
                    site=SiteKey.of(event.site), asked=event.asked, at_unix_ns=at, held=held, exact=exact
                )
            )
        del self._failures[:-KEPT]

    def named(
        self, name: Callable[[SiteKey], NamedSite], wanted: Callable[[NamedSite], bool]
    ) -> tuple[OutOfMemory, ...]:
        found = []
        for failure in self._failures:
            site = name(failure.site)
            if not wanted(site):
                continue
            holdings: dict[NamedSite, Holding] = {}
            for key, (size, objects) in failure.held.items():
                one = name(key)
                before = holdings.get(one, Holding(bytes=0, objects=0))
                holdings[one] = Holding(bytes=before.bytes + size, objects=before.objects + objects)
            found.append(
                OutOfMemory(
                    site=site,
                    asked_bytes=failure.asked,
                    at_unix_ns=failure.at_unix_ns,
                    holdings=holdings,
                    exact=failure.exact,
                )
            )
        return tuple(found)

    def forget(self, images: set[int]) -> None:
        self._failures = [failure for failure in self._failures if failure.site.image not in images]


def _held(sums: abi.Totals, moment: int) -> tuple[int, int]:
    if sums.moment >= moment:
        return sums.held_bytes, sums.held_objects
    return sums.allocated_bytes - sums.freed_bytes, sums.allocated_objects - sums.freed_objects
