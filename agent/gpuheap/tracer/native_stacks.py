# SPDX-License-Identifier: Apache-2.0
"""Native stacks by what stands for them in the kernel side: unwound when their copy comes, named when asked for.

A copy is unwound at once, as its process may be gone soon; its files stay open as long as the process is known. Many
copies can be of one stack: the kernel side is told the name that the first one had.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Set
from typing import Final

from gpuheap.heap.model import Frame
from gpuheap.stacks.executable_memory import executable_memory
from gpuheap.stacks.mapped_files import MappedFiles
from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.merge import native_frame
from gpuheap.stacks.snapshot import Snapshot
from gpuheap.stacks.symbols import Symbols
from gpuheap.stacks.unwinder import Unwinder

from . import libbpf
from .abi import (
    EventType,
    FrameBase,
    SameStackEvent,
    SnapshotEvent,
    Text,
    TextEvent,
    UnwindKey,
    UnwindRule,
)
from .native_images import Image, NativeStack, rule_at
from .new_mappings import NewMapping
from .snapshot_events import evaluations, snapshot_of

KEPT_NAMES: Final = 16_384
"""Of a process's stacks, all names that they have had: when there are more, those of no site go."""

REPEATED: Final = 512
"""Copies of stacks that are known, after which a process's rules are told to the kernel side anew."""

KEPT_EXPECTED: Final = 256
"""Processes that have mapped a driver and not called it yet."""


class NativeStacks:
    """Reads the ring of snapshots. `images` are ids of process images."""

    def __init__(
        self, bpf: libbpf.BpfObject, announce: Callable[[], None], note_mappings: Callable[[], None]
    ) -> None:
        """`announce` has `begin` called for the processes of which the kernel side has told meanwhile, and
        `note_mappings` has `mapped` called for what has been mapped."""
        self._announce = announce
        self._note_mappings = note_mappings
        self._texts = bpf.map_fd("texts")
        self._known = bpf.map_fd("known_natives")
        self._rules = bpf.map_fd("unwind_rules")
        self._ring = libbpf.RingBuffer(bpf.map_fd("snapshots"), self._receive)
        self._files = MappedFiles()
        self._unwinder = Unwinder()
        self._symbols = Symbols()
        self._images: dict[int, Image] = {}
        self._expected: dict[int, MemoryMap] = {}
        self._expected_anew: set[int] = set()  # that have mapped more since they were looked at
        self._images_by_pid: dict[int, Image] = {}
        self._unnamed: deque[tuple[Image, NativeStack]] = deque()
        self._last_text = 0
        self.cut = 0
        """Stacks whose unwinding ended before the thread's root."""

    @property
    def unread_lines(self) -> int:
        """Files whose debug information could not be read, or not all of it."""
        return self._symbols.unread_lines

    @property
    def fileno(self) -> int:
        return self._ring.fileno

    def close(self) -> None:
        self._ring.close()
        self._symbols.close()

    def consume(self) -> None:
        """Unwind all that has come; then name it, which can take longer than the kernel side's ring lasts."""
        self._ring.consume()
        while self._unnamed:
            self._name(*self._unnamed.popleft())
            self._ring.consume()
        for image in [image for image in self._images.values() if image.is_stale]:
            self._refresh(image)

    def expect(self, pid: int) -> None:
        """A process has mapped a driver: it is looked at now, as it may be gone when its first stack is here."""
        self._expected.pop(pid, None)
        self._expected[pid] = MemoryMap(pid, self._files)
        if len(self._expected) > KEPT_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def look_at_expected(self) -> None:
        """What a process maps after its driver, as a program does its C library, may be gone as soon."""
        for pid in self._expected_anew:
            if pid in self._expected:
                self._expected[pid].refresh()
        self._expected_anew.clear()

    def mapped(self, new: NewMapping) -> None:
        """A process has just mapped executable memory. What was there may have gone."""
        image = self._images_by_pid.get(new.pid)
        if new.pid in self._expected:
            self._expected_anew.add(new.pid)
        if image is not None:
            image.mapped(new.mapping.start, new.mapping.end, new.time_ns)

    def mapped_anywhere(self) -> None:
        """It is not known what was mapped."""
        for image in self._images_by_pid.values():
            image.mapped(0, 1 << 64, 0)

    def begin(self, image: int, pid: int, parent: int) -> None:
        """A process has called a driver for the first time. `parent`: the pid of its parent then."""
        self._image(image, pid, parent)

    def stack(self, image: int, native: int) -> NativeStack | None:
        """None when its copy has not come."""
        known = self._images.get(image)
        return known.stacks.get(native) if known else None

    def keep(self, used: Set[int]) -> None:
        """Forget names of stacks that are of no site, when there are very many. `used` are those of all sites."""
        for image in self._images.values():
            if len(image.stacks) > KEPT_NAMES:
                first = set(image.first_names.values())
                image.stacks = {
                    native: stack
                    for native, stack in image.stacks.items()
                    if native in used or native in first
                }

    def forget(self, images: set[int]) -> None:
        for image in images:
            gone = self._images.pop(image, None)
            if gone is not None and self._images_by_pid.get(gone.pid) is gone:
                del self._images_by_pid[gone.pid]

    def ended(self, image: int) -> None:
        """Its memory is no longer asked for by the kernel side."""
        known = self._images.get(image)
        if known is not None:
            known.ended = True
        libbpf.delete(self._texts, ctypes.c_uint64(image))

    def _image(self, image: int, pid: int, parent: int = 0) -> Image:
        if image not in self._images and not parent:
            self._announce()
        known = self._images.get(image)
        if known is None:
            # If it has mapped no driver itself, it was forked.
            before = self._expected.pop(pid, None) or self._memory_of(parent)
            memory = MemoryMap(pid, self._files, before)
            known = self._images[image] = self._images_by_pid[pid] = Image(image, pid, memory)
        return known

    def _memory_of(self, pid: int) -> MemoryMap | None:
        image = self._images_by_pid.get(pid)
        return image.memory if image is not None else self._expected.get(pid)

    def _receive(self, data: bytes) -> None:
        kind = int.from_bytes(data[:4], "little")
        if kind == EventType.SNAPSHOT:
            event = SnapshotEvent.from_buffer_copy(data)
            self._add(event, snapshot_of(event, data[ctypes.sizeof(SnapshotEvent) :]))
        elif kind == EventType.SAME_STACK:
            self._note_same(SameStackEvent.from_buffer_copy(data))
        elif kind == EventType.TEXT:
            self._note_text(TextEvent.from_buffer_copy(data))

    def _add(self, event: SnapshotEvent, snapshot: Snapshot) -> None:
        image = self._image(event.image, event.tgid)
        self._note_mappings()
        # A stack of before is unwound by what was there before, as the process may have gone on.
        if image.changed_ns is not None and image.changed_ns <= event.time_ns:
            self._refresh(image)
        unwound = self._unwinder.unwind(snapshot, image.memory)
        name = image.first_names.setdefault(unwound.addresses, event.native)
        if name == event.native:
            stack = NativeStack(
                unwound.addresses,
                unwound.reason is None,
                evaluations=evaluations(event, unwound),
            )
            image.stacks[name] = stack
            self._unnamed.append((image, stack))
            self.cut += not stack.whole
        else:
            image.stacks[event.native] = image.stacks[name]
            libbpf.update_number(self._known, event.native, name)
            image.repeated += 1
            if image.repeated % REPEATED == 0:  # the kernel side has forgotten some
                image.told.clear()
        if unwound.reason is None and not unwound.guesses:
            image.untold.add(unwound.addresses)
            self._tell_rules(image)

    def _note_same(self, event: SameStackEvent) -> None:
        image = self._images.get(event.image)
        known = image.stacks.get(event.known) if image is not None else None
        if image is not None and known is not None:
            image.stacks[event.native] = known

    def _tell_rules(self, image: Image) -> None:
        """The kernel side is told how to unwind the stacks that have come, once its code has a number there."""
        if image.text:
            for addresses in image.untold:
                self._tell_rules_of(image, addresses)
            image.untold.clear()

    def _tell_rules_of(self, image: Image, addresses: tuple[int, ...]) -> None:
        """How to unwind each frame, as far as they are simple."""
        for number, address in enumerate(addresses):
            place = address if number == 0 else address + 1  # as it stands on the stack
            if place in image.told:
                continue
            rule = rule_at(image.memory, address)
            if rule is None or (number == 0 and rule != rule_at(image.memory, address - 1)):
                return
            value = UnwindRule(cfa=rule.cfa, saved_bp=rule.saved_bp, base=FrameBase[rule.base.name])
            libbpf.update(self._rules, UnwindKey(pc=place, text=image.text), value)
            image.told.add(place)

    def _note_text(self, event: TextEvent) -> None:
        """The kernel side asks what is executable; it is told when the stacks of before are unwound."""
        image = self._image(event.image, event.tgid)
        image.pages, image.asked = event.pages, True

    def _refresh(self, image: Image) -> None:
        """The kernel side is told what is executable, and whether addresses mean something else from now on."""
        self._name_all()
        code_is_other = image.refresh()
        if not image.pages or image.ended:  # it has not asked yet, or will not again
            return
        if not image.text or code_is_other:
            self._last_text += 1
            image.text = self._last_text
        libbpf.update_inner(self._texts, image.id, _text(image))
        self._tell_rules(image)

    def _name_all(self) -> None:
        while self._unnamed:
            self._name(*self._unnamed.popleft())

    def _name(self, image: Image, stack: NativeStack) -> None:
        # Copies are made when the driver has returned: what called it is before that place, too.
        calls = (stack.addresses[0] - 1, *stack.addresses[1:])
        stack.frames = tuple(self._frame(image, address) for address in reversed(calls))

    def _frame(self, image: Image, address: int) -> Frame:
        frame = image.frames.get(address)
        if frame is None:
            symbol = self._symbols.name(address, image.memory)
            frame = image.frames[address] = native_frame(
                symbol.function, symbol.library, symbol.build_id, symbol.file, symbol.line
            )
        return frame


def _text(image: Image) -> Text:
    memory = executable_memory(image.code())
    if memory is None:  # it has no room for all of it: as if nothing were known but the number
        return Text(pages=0, id=image.text)
    text = Text(pages=image.pages, id=image.text, factor=memory.factor)
    text.windows[:] = memory.windows
    ctypes.memmove(text.bits, memory.bits, len(memory.bits))
    return text
