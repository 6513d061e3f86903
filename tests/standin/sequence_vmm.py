# SPDX-License-Identifier: Apache-2.0
"""The part of a sequence that uses virtual memory management: create, map, unmap, release, in every order."""

from dataclasses import dataclass, field
from typing import Final

from tests.standin.sequence_model import Model

PAGE: Final = 2 << 20
LOCATIONS: Final = ("1 0", "1 0", "1 1", "1 1", "2 0", "3 0", "4 0")


@dataclass(slots=True, eq=False)
class Physical:
    register: int
    pages: int
    references: int = 1
    mappings: int = 0


@dataclass(slots=True, eq=False)
class Reserved:
    register: int
    pages: int
    mapped: dict[int, Physical] = field(default_factory=dict)
    """By first page; a mapping takes all pages of its memory."""

    def gap(self, pages: int) -> int | None:
        """The first page of enough free ones."""
        at = 0
        for start in sorted(self.mapped):
            if start - at >= pages:
                return at
            at = start + self.mapped[start].pages
        return at if self.pages - at >= pages else None

    def run(self, start: int, longest: int) -> list[int]:
        """The first pages of the mappings that follow one another from `start` on."""
        found: list[int] = []
        while start in self.mapped and len(found) < longest:
            found.append(start)
            start += self.mapped[start].pages
        return found


class VirtualMemory:
    """Registers 9000 and above are its own; dead handles stay in theirs, to be released again."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._random = model.random
        self._physicals: list[Physical] = []
        self._reserved: list[Reserved] = []
        self._dead: list[int] = []
        self._register = 8999

    def step(self) -> None:
        steps = (
            self._create, self._map, self._map, self._map, self._unmap, self._unmap, self._release,
            self._release, self._retain, self._reserve, self._unreserve, self._share, self._err,
        )  # fmt: skip
        self._random.choice(steps)()

    def _say(self, call: str) -> None:
        self._model.say(self._model.any_thread(), call)

    def _new_register(self) -> int:
        used = {one.register for one in self._physicals} | {one.register for one in self._reserved}
        while True:
            self._register = self._register + 1 if self._register < 9999 else 9000
            if self._register not in used:
                return self._register

    def _create(self) -> None:
        if len(self._physicals) > 24:
            return self._release()
        made = Physical(self._new_register(), self._random.randint(1, 4))
        place = self._random.choice(LOCATIONS)
        self._say(f"cuMemCreate r{made.register} {made.pages * PAGE} {place} 0")
        self._physicals.append(made)
        return None

    def _reserve(self) -> None:
        if len(self._reserved) < 4:
            made = Reserved(self._new_register(), self._random.randint(8, 40))
            self._say(f"cuMemAddressReserve r{made.register} {made.pages * PAGE} 0 0 0")
            self._reserved.append(made)

    def _unreserve(self) -> None:
        if self._reserved:
            reserved = self._random.choice(self._reserved)
            self._say(f"cuMemAddressFree r{reserved.register} {reserved.pages * PAGE}")
            if not reserved.mapped:
                self._reserved.remove(reserved)

    def _map(self) -> None:
        physicals = [one for one in self._physicals if one.references]
        if not physicals or not self._reserved:
            return
        physical, reserved = self._random.choice(physicals), self._random.choice(self._reserved)
        start = reserved.gap(physical.pages)
        if start is None:
            return
        address, size = f"r{reserved.register}+{start * PAGE}", physical.pages * PAGE
        self._say(f"cuMemMap {address} {size} 0 r{physical.register} 0")
        self._say(f"cuMemSetAccess {address} {size} 1")
        reserved.mapped[start] = physical
        physical.mappings += 1

    def _unmap(self) -> None:
        reserved = self._some_mapped()
        if reserved is None:
            return
        run = reserved.run(self._random.choice(list(reserved.mapped)), self._random.randint(1, 3))
        pages = sum(reserved.mapped[start].pages for start in run)
        self._say(f"cuMemUnmap r{reserved.register}+{run[0] * PAGE} {pages * PAGE}")
        for start in run:
            physical = reserved.mapped.pop(start)
            physical.mappings -= 1
            self._bury(physical)

    def _some_mapped(self) -> Reserved | None:
        mapped = [one for one in self._reserved if one.mapped]
        return self._random.choice(mapped) if mapped else None

    def _release(self) -> None:
        physicals = [one for one in self._physicals if one.references]
        if physicals:
            physical = self._random.choice(physicals)
            self._say(f"cuMemRelease r{physical.register}")
            physical.references -= 1
            self._bury(physical)

    def _bury(self, physical: Physical) -> None:
        if not physical.references and not physical.mappings and physical in self._physicals:
            self._physicals.remove(physical)
            self._dead = [*self._dead, physical.register][-20:]

    def _retain(self) -> None:
        reserved = self._some_mapped()
        if reserved:
            start = self._random.choice(list(reserved.mapped))
            physical = reserved.mapped[start]
            self._say(f"cuMemRetainAllocationHandle r{physical.register} r{reserved.register}+{start * PAGE}")
            physical.references += 1

    def _share(self) -> None:
        """Imported memory and multicast objects: handles like others, without memory."""
        made = Physical(self._new_register(), 1)
        physicals = [one for one in self._physicals if one.references]
        if physicals and self._random.random() < 0.5:
            exported = self._random.choice(physicals)
            made.pages = exported.pages
            self._say(f"cuMemExportToShareableHandle r94 r{exported.register} 1 0")
            self._say(f"cuMemImportFromShareableHandle r{made.register} r94 1")
            self._model.lines.append("close r94")
        else:
            self._say(f"cuMulticastCreate r{made.register} 2 {PAGE}")
        self._physicals.append(made)

    def _err(self) -> None:
        """Released once too often, unmapped in part, mapped over another, retained where nothing is."""
        gone = [one.register for one in self._physicals if not one.references] + self._dead[-3:]
        if gone and self._random.random() < 0.4:
            self._say(f"cuMemRelease r{self._random.choice(gone)}")
        reserved = self._some_mapped()
        if reserved is None:
            return
        start = self._random.choice(list(reserved.mapped))
        physical, address = reserved.mapped[start], f"r{reserved.register}+{start * PAGE}"
        if physical.pages > 1:
            self._say(f"cuMemUnmap {address} {PAGE}")
        self._say(f"cuMemMap {address} {physical.pages * PAGE} 0 r{physical.register} 0")
        gap = reserved.gap(1)
        if gap is not None:
            self._say(f"cuMemRetainAllocationHandle r93 r{reserved.register}+{gap * PAGE}")
