# SPDX-License-Identifier: Apache-2.0
"""What is freed without a call that the kernel side could match: with its process, its context, or beyond its tables.

The kernel side keeps its own totals; what is here comes on top of them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from . import abi

SPILL_LIMIT: Final = 1 << 20
"""Allocations beyond the kernel's table that are kept here: about 300 bytes each."""

FREEING_LIMIT: Final = 4096
"""Frees of these that are remembered, in case they fail."""


class SiteKey(NamedTuple):
    """abi.Site, to be a key."""

    stack: int
    native: int
    image: int
    tid: int
    device: int
    kind: int
    call: int

    @classmethod
    def of(cls, site: abi.Site) -> "SiteKey":
        return cls(site.stack, site.native, site.image, site.tid, site.device, site.kind, site.call)


@dataclass(slots=True)
class Released:
    """Bytes and objects of a site; `exit_*` is the part that went with the process."""

    bytes: int = 0
    objects: int = 0
    exit_bytes: int = 0
    exit_objects: int = 0


class Spilled(NamedTuple):
    bytes: int
    site: SiteKey
    owner: int
    pool: int


class Releases:
    def __init__(self) -> None:
        self._released: dict[SiteKey, Released] = {}
        self._by_moment: dict[SiteKey, dict[int, tuple[int, int]]] = {}
        self._spilled: dict[tuple[int, int, int], Spilled] = {}
        self._freeing: dict[tuple[int, int, int], tuple[Spilled, int, int]] = {}
        self._freed_of_pools: Counter[tuple[int, int]] = Counter()
        self.spill_full = 0
        self.unknown_frees = 0

    def of(self, site: SiteKey) -> Released:
        return self._released.get(site, _NOTHING)

    def before(self, site: SiteKey, moment: int) -> tuple[int, int]:
        """Bytes and objects of a site that were released before out-of-memory failure number `moment`."""
        earlier = [part for when, part in self._by_moment.get(site, {}).items() if when < moment]
        return sum(size for size, _ in earlier), sum(count for _, count in earlier)

    def freed_of_pool(self, image: int, pool: int) -> int:
        """Bytes of spilled allocations that went back to this pool: the kernel side does not know of them."""
        return self._freed_of_pools[image, pool]

    def add(self, site: SiteKey, size: int, *, at_exit: bool, objects: int = 1, moment: int = 0) -> None:
        """`moment` is how many calls had failed for want of memory when it was released."""
        one = self._released.setdefault(site, Released())
        one.bytes += size
        one.objects += objects
        if at_exit:  # a process that has ended fails no more
            one.exit_bytes += size
            one.exit_objects += objects
            return
        moments = self._by_moment.setdefault(site, {})
        before = moments.get(moment, (0, 0))
        moments[moment] = (before[0] + size, before[1] + objects)

    def spill(self, event: abi.SpillEvent, ended: set[int]) -> None:
        """An allocation that is not in the kernel's table, or the free of what may be one."""
        key = (event.key.image, event.key.space, event.key.address)
        if event.key.image in ended:  # the event that says so was quicker
            if event.type == abi.EventType.SPILL:
                self.add(SiteKey.of(event.value.site), event.value.bytes, at_exit=True)
        elif event.type == abi.EventType.SPILL:
            self._replace(key, event.value, event.moment)
        elif event.type == abi.EventType.SPILL_FREE:
            self._free(key, event.moment)
        else:
            self._keep(key)

    def _free(self, key: tuple[int, int, int], moment: int) -> None:
        if one := self._spilled.pop(key, None):
            self._freeing[key] = (one, 1, moment)
            if len(self._freeing) > FREEING_LIMIT:
                del self._freeing[next(iter(self._freeing))]
            self._free_spilled(one, moment)
            return
        self.unknown_frees += 1
        if key in self._freeing:  # by several threads at a time
            one, times, when = self._freeing[key]
            self._freeing[key] = (one, times + 1, when)

    def _keep(self, key: tuple[int, int, int]) -> None:
        """A free has failed: so it was none; it is in use again when all frees of the same have failed."""
        one, times, when = self._freeing.pop(key, (None, 0, 0))
        if one is not None and times == 1:
            self._free_spilled(one, when, sign=-1)
            self._spilled[key] = one
            return
        self.unknown_frees -= 1
        if one is not None:
            self._freeing[key] = (one, times - 1, when)

    def _replace(self, key: tuple[int, int, int], value: abi.LiveValue, moment: int) -> None:
        self._freeing.pop(key, None)
        if before := self._spilled.pop(key, None):  # freed unseen
            self._free_spilled(before, moment)
        if len(self._spilled) >= SPILL_LIMIT:
            self.spill_full += 1
            return
        self._spilled[key] = Spilled(value.bytes, SiteKey.of(value.site), value.owner, value.pool)

    def _free_spilled(self, one: Spilled, moment: int, sign: int = 1) -> None:
        self.add(one.site, sign * one.bytes, at_exit=False, objects=sign, moment=moment)
        self._freed_of_pools[one.site.image, one.pool] += sign * one.bytes

    def end(self, images: set[int], owners: Mapping[int, int]) -> None:
        """These images, and these contexts and graphs (with the moment), are gone with all that was theirs."""
        for key, one in list(self._spilled.items()):
            if one.site.image in images or one.owner in owners:
                del self._spilled[key]
                at_exit = one.site.image in images
                self.add(one.site, one.bytes, at_exit=at_exit, moment=owners.get(one.owner, 0))
        self._freeing = {key: freeing for key, freeing in self._freeing.items() if key[0] not in images}

    def forget(self, images: set[int]) -> None:
        for site in [site for site in self._released if site.image in images]:
            del self._released[site]
            self._by_moment.pop(site, None)
        self._freed_of_pools = Counter(
            {key: freed for key, freed in self._freed_of_pools.items() if key[0] not in images}
        )


_NOTHING: Final = Released()
