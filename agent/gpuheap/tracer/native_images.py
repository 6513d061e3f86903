# SPDX-License-Identifier: Apache-2.0
"""What is known of the native stacks of one process image, as long as its addresses mean the same code."""

from dataclasses import dataclass

from gpuheap.heap.model import Frame
from gpuheap.stacks.code_history import CodeHistory
from gpuheap.stacks.dwarf import Malformed
from gpuheap.stacks.frame_rules import Budget, Exhausted
from gpuheap.stacks.memory_map import MemoryMap, NoFile
from gpuheap.stacks.simple_rules import SimpleRule, simple_rule


@dataclass(slots=True)
class NativeStack:
    """`frames` go from the thread's root inwards. `whole` False: outer ones are missing.

    `evaluations`: places among `frames` of those that evaluate Python functions; None: their names tell.
    """

    addresses: tuple[int, ...]
    whole: bool
    frames: tuple[Frame, ...] = ()
    evaluations: tuple[int, ...] | None = None


class Image:
    """A process image: stacks by their names in the kernel side, and what their addresses stand for."""

    def __init__(self, number: int, pid: int, memory: MemoryMap) -> None:
        self.id = number
        self.pid = pid
        self.memory = memory
        self.stacks: dict[int, NativeStack] = {}
        self.first_names: dict[tuple[int, ...], int] = {}
        self.frames: dict[int, Frame] = {}
        self.text = 0  # the number of its code in the kernel side; 0: it has none
        self.pages = 0  # of executable memory, when the kernel side last asked for it
        self.told: set[int] = set()
        self.untold: set[tuple[int, ...]] = set()  # stacks whose frames the kernel side cannot unwind yet
        self.repeated = 0
        self.ended = False
        self.asked = False  # the kernel side waits for an answer
        self.changed_ns: int | None = None
        """When something was first mapped since its memory was looked at."""
        self._history = CodeHistory()

    def code(self) -> set[tuple[int, int]]:
        return {(region.begin, region.end) for region in self.memory.regions if region.executable}

    @property
    def is_stale(self) -> bool:
        return self.asked or self.changed_ns is not None

    def mapped(self, begin: int, end: int, time_ns: int) -> None:
        """Memory without a file that stays such, as compilers at run time change it all the time, is no news."""
        known = self.memory.find(begin)
        if known is None or known.inode or not known.executable or end > known.end:
            self.memory.doubt(begin, end)
            self.changed_ns = time_ns if self.changed_ns is None else min(self.changed_ns, time_ns)

    def refresh(self) -> bool:
        """Looks at its memory. Whether other code lies where some was at an earlier look: then all is learnt anew."""
        self.asked, self.changed_ns = False, None
        self.memory.refresh()
        code_is_other = self._history.replaced(self.memory.regions)
        if code_is_other:
            self.told.clear()
            self.untold.clear()
            self.frames.clear()
            self.first_names.clear()
        return code_is_other


def rule_at(memory: MemoryMap, address: int) -> SimpleRule | None:
    """How to unwind the frame at an address, if that is simple."""
    region = memory.find(address)
    place = region.address_as_linked(address) if region is not None else None
    if region is None or place is None or isinstance(region.file, NoFile):
        return None
    try:
        rules = region.file.rules(place, Budget())
    except (Malformed, Exhausted):
        return None
    return simple_rule(rules) if rules is not None else None
