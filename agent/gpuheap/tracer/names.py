# SPDX-License-Identifier: Apache-2.0
"""Gives stacks of the kernel side their names.

A stack that could not be had is one frame in angle brackets that says why.
"""

from ctypes import c_uint64
from typing import Final

from gpuheap.heap.model import Frame as NamedFrame
from gpuheap.heap.model import FrameKind
from gpuheap.stacks.code_objects import CodeObject, text
from gpuheap.stacks.merge import Run

from . import libbpf
from .abi import INNER_FRAMES, LINES_BYTES, CodeEvent, FrameFlag, Stack, StackReason
from .process_memory import read_memory

MAX_LINES_BYTES: Final = 1 << 20

LOST_NAME: Final = "<name lost>"
NO_OUTERMOST: Final = "<outer frames cut>"
"""Of a stack so deep that its outer end was not reached."""

_REASONS: Final = {
    StackReason.NO_INTERPRETER: "<native stack not captured>",
    StackReason.NO_THREAD_STATE: "<thread without Python>",
    StackReason.FAULT: "<Python stack not readable>",
    StackReason.NO_ROOM: "<no room for the stack>",
    StackReason.EMPTY: "<no Python function on the stack>",
    StackReason.NO_SITE: "<too many places>",
    StackReason.UNSEARCHED: "<too many Python threads>",
    StackReason.IMPLAUSIBLE: "<not the Python that it says>",
}


def unknown(function: str) -> NamedFrame:
    return NamedFrame(function=function, kind=FrameKind.UNKNOWN)


class Names:
    """Code objects as they were described, and the stacks made of them."""

    def __init__(self, stacks_fd: int) -> None:
        self._stacks_fd = stacks_fd
        self._codes: dict[tuple[int, int], CodeObject] = {}
        self._stacks: dict[int, tuple[Run, ...]] = {}
        self.unnamed = 0
        """Stacks with a frame whose description was lost."""

    def describe(self, event: CodeEvent) -> None:
        self._codes[event.image, event.code] = CodeObject(
            name=text(bytes(event.name), event.name_length, event.name_width),
            file=text(bytes(event.file), event.file_length, event.file_width, last=True),
            first_line=event.first_line,
            lines=_lines(event),
            lines_format=event.lines_format,
        )

    def stack(self, image: int, key: int, missing: str | None = None) -> tuple[NamedFrame, ...]:
        """Frames from the thread's root inwards. `missing` replaces the reason for a process without interpreter."""
        runs = self.runs(image, key)
        if runs is not None:
            return tuple(frame for run in runs for frame in run.frames)
        if key >= StackReason.REASONS:
            return (unknown(_REASONS[StackReason.NO_ROOM]),)
        if key == StackReason.NO_INTERPRETER and missing:
            return (unknown(missing),)
        return (unknown(_REASONS.get(StackReason(key), "<unknown>")),)

    def runs(self, image: int, key: int) -> tuple[Run, ...] | None:
        """The same by evaluation frame, outermost first; None for a stack that could not be had."""
        if key < StackReason.REASONS:
            return None
        if key not in self._stacks:
            found = libbpf.lookup(self._stacks_fd, c_uint64(key), Stack)
            if found is None:
                return None
            self._stacks[key] = self._named(image, found)
        return self._stacks[key]

    def forget(self, images: set[int], keys: set[int]) -> None:
        self._codes = {key: code for key, code in self._codes.items() if key[0] not in images}
        for key in keys:
            if self._stacks.pop(key, None) is not None:
                libbpf.delete(self._stacks_fd, c_uint64(key))

    def _named(self, image: int, stack: Stack) -> tuple[Run, ...]:
        runs: list[Run] = []
        run = _Inwards()
        lost = False
        for place, frame in enumerate(stack.frames[: stack.depth]):
            if place == INNER_FRAMES and stack.cut:
                run.cut(f"<… {stack.cut} frames cut>")
            code = self._codes.get((image, frame.code))
            if code is None:
                lost = True
                run.frames.append(unknown(LOST_NAME))
            elif not code.is_trampoline:
                run.frames.append(code.frame(frame.instruction))
            if frame.flags & FrameFlag.OUTERMOST:
                runs.append(run.whole())
                run = _Inwards()
        self.unnamed += lost
        if stack.endless:
            run.cut(NO_OUTERMOST)
        if run.frames:
            runs.append(run.whole())
        return tuple(reversed(runs))


class _Inwards:
    """A run that is put together from its innermost frame on."""

    def __init__(self) -> None:
        self.frames: list[NamedFrame] = []
        self._cut: int | None = None

    def cut(self, name: str) -> None:
        self._cut = len(self.frames)
        self.frames.append(unknown(name))

    def whole(self) -> Run:
        cut_at = None if self._cut is None else len(self.frames) - 1 - self._cut
        return Run(frames=tuple(reversed(self.frames)), cut_at=cut_at)


def _lines(event: CodeEvent) -> bytes:
    """The line table: what the event holds, and the rest from the process while it is there."""
    kept = bytes(event.lines[: min(event.lines_bytes, LINES_BYTES)])
    rest = min(event.lines_bytes, MAX_LINES_BYTES) - len(kept)
    return kept + read_memory(event.tgid, event.lines_address + len(kept), rest) if rest > 0 else kept
