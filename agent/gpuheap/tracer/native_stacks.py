# SPDX-License-Identifier: Apache-2.0
"""Native stacks by what stands for them in the kernel side: unwound when their copy comes, named when asked for.

A copy is unwound at once, as its process may be gone soon; its files stay open as long as the process is known. Many
copies can be of one stack: the kernel side is told the name that the first one had.
"""

import ctypes
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from gpuheap.heap.model import Frame
from gpuheap.stacks.executable_memory import ExecutableMemory, executable_memory
from gpuheap.stacks.mapped_files import MappedFiles
from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.merge import native_frame
from gpuheap.stacks.snapshot import Registers, Snapshot
from gpuheap.stacks.unwinder import Unwinder, Unwound

from . import libbpf
from .abi import PAGE_BYTES, EventType, SnapshotEvent, Text, TextEvent

KEPT_NAMES: Final = 16_384
"""Of a process's stacks, all names that they have had: when there are more, those of no site go."""

KEPT_EXPECTED: Final = 256
"""Processes that have mapped a driver and not called it yet."""


@dataclass(frozen=True, slots=True)
class NativeStack:
    """`frames` go from the thread's root inwards. `whole` False: outer ones are missing."""

    frames: tuple[Frame, ...]
    whole: bool


class _Image:
    """What is known of one process image."""

    def __init__(self, memory: MemoryMap) -> None:
        self.memory = memory
        self.stacks: dict[int, tuple[int, ...]] = {}
        self.names: dict[tuple[int, ...], int] = {}
        self.whole: dict[tuple[int, ...], bool] = {}
        self.frames: dict[int, Frame] = {}
        self.named: dict[tuple[int, ...], NativeStack] = {}


class NativeStacks:
    """Reads the ring of snapshots. `images` are ids of process images."""

    def __init__(self, bpf: libbpf.BpfObject) -> None:
        self._texts = bpf.map_fd("texts")
        self._known = bpf.map_fd("known_natives")
        self._ring = libbpf.RingBuffer(bpf.map_fd("snapshots"), self._receive)
        self._files = MappedFiles()
        self._unwinder = Unwinder()
        self._images: dict[int, _Image] = {}
        self._expected: dict[int, MemoryMap] = {}
        self.cut = 0
        """Stacks whose unwinding ended before the thread's root."""

    @property
    def fileno(self) -> int:
        return self._ring.fileno

    def close(self) -> None:
        self._ring.close()

    def consume(self) -> None:
        """Unwind all that has come."""
        self._ring.consume()

    def expect(self, pid: int) -> None:
        """A process has mapped a driver: it is looked at now, as it may be gone when its first stack is here."""
        self._expected.pop(pid, None)
        self._expected[pid] = MemoryMap(pid, self._files)
        if len(self._expected) > KEPT_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def begin(self, image: int, pid: int) -> None:
        """A process has called a driver for the first time."""
        self._image(image, pid)

    def stack(self, image: int, native: int) -> NativeStack | None:
        """None when its copy has not come."""
        known = self._images.get(image)
        addresses = known.stacks.get(native) if known else None
        if known is None or addresses is None:
            return None
        named = known.named.get(addresses)
        if named is None:
            frames = tuple(self._frame(known, address) for address in reversed(addresses))
            named = known.named[addresses] = NativeStack(frames, known.whole[addresses])
        return named

    def keep(self, used: Set[int]) -> None:
        """Forget names of stacks that are of no site, when there are very many. `used` are those of all sites."""
        for image in self._images.values():
            if len(image.stacks) > KEPT_NAMES:
                first = set(image.names.values())
                image.stacks = {
                    native: addresses
                    for native, addresses in image.stacks.items()
                    if native in used or native in first
                }

    def forget(self, images: set[int]) -> None:
        for image in images:
            self._images.pop(image, None)

    def ended(self, image: int) -> None:
        """Its memory is no longer asked for by the kernel side."""
        libbpf.delete(self._texts, ctypes.c_uint64(image))

    def _image(self, image: int, pid: int) -> _Image:
        known = self._images.get(image)
        if known is None:
            memory, before = MemoryMap(pid, self._files), self._expected.pop(pid, None)
            # One that is gone has no mappings any more.
            known = self._images[image] = _Image(memory if memory.regions or before is None else before)
        return known

    def _receive(self, data: bytes) -> None:
        kind = int.from_bytes(data[:4], "little")
        if kind == EventType.SNAPSHOT:
            event = SnapshotEvent.from_buffer_copy(data)
            self._add(event, _snapshot(event, data[ctypes.sizeof(SnapshotEvent) :]))
        elif kind == EventType.TEXT:
            self._tell_text(TextEvent.from_buffer_copy(data))

    def _add(self, event: SnapshotEvent, snapshot: Snapshot) -> None:
        image = self._image(event.image, event.tgid)
        unwound = self._unwinder.unwind(snapshot, image.memory)
        name = self._name(image, event.native, unwound)
        if name != event.native:
            libbpf.update_number(self._known, event.native, name)

    def _name(self, image: _Image, native: int, unwound: Unwound) -> int:
        addresses = unwound.addresses
        name = image.names.setdefault(addresses, native)
        if name == native and native not in image.stacks:
            self.cut += unwound.reason is not None
        image.whole[addresses] = unwound.reason is None
        image.stacks[native] = addresses
        return name

    def _tell_text(self, event: TextEvent) -> None:
        memory = self._image(event.image, event.tgid).memory
        memory.refresh()
        found = executable_memory(
            (region.begin, region.end) for region in memory.regions if region.executable
        )
        if found is not None:
            libbpf.update_inner(self._texts, event.image, _text(event.pages, found))

    def _frame(self, image: _Image, address: int) -> Frame:
        frame = image.frames.get(address)
        if frame is None:
            region = image.memory.find(address)
            place = region.address_as_linked(address) if region else None
            path = region.path if region else ""
            shown = address if place is None else place
            name = f"{path.rpartition('/')[2]}+{shown:#x}"
            frame = image.frames[address] = native_frame(name, path)
        return frame


def _snapshot(event: SnapshotEvent, memory: bytes) -> Snapshot:
    """The stack as it would be without return probes: the kernel says which addresses they have taken."""
    registers = event.registers
    begin = registers.sp & ~(PAGE_BYTES - 1)
    end = min(event.end - begin, event.pages * PAGE_BYTES)
    stack = bytearray(memory[registers.sp - begin : max(end, 0)])
    for taken in event.returns[: event.taken]:
        place = taken.stack - registers.sp
        there = stack[place : place + 8] if 0 <= place <= len(stack) - 8 else b""
        # One that was left by longjmp has no trampoline on the stack any more.
        if there and int.from_bytes(there, "little") & ~(PAGE_BYTES - 1) == event.trampoline:
            stack[place : place + 8] = taken.address.to_bytes(8, "little")
    return Snapshot(
        registers=Registers(
            rip=registers.ip,
            rsp=registers.sp,
            rbp=registers.bp,
            rbx=registers.bx,
            r12=registers.r12,
            r13=registers.r13,
            r14=registers.r14,
            r15=registers.r15,
        ),
        stack=bytes(stack),
    )


def _text(pages: int, memory: ExecutableMemory) -> Text:
    text = Text(pages=pages)
    text.windows[:] = memory.windows
    ctypes.memmove(text.bits, memory.bits, len(memory.bits))
    return text
