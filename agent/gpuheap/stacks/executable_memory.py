# SPDX-License-Identifier: Apache-2.0
"""Where a process has executable memory, as the kernel side looks it up: a bit for each piece of the address space.

Pure. The layout is that of `struct text` in bpf/gpuheap.h.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PIECE_BITS: Final = 16
WINDOW_BITS: Final = 33
WINDOWS: Final = 4
PLACES: Final = 64
NO_WINDOW: Final = 0xFFFFFFFF
USER_END: Final = 1 << 47
_PIECES: Final = 1 << (WINDOW_BITS - PIECE_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableMemory:
    """`windows` by the low bits of a window's number: the number, and which part of `bits` is about it."""

    windows: tuple[int, ...]
    bits: bytes


def executable_memory(regions: Iterable[tuple[int, int]]) -> ExecutableMemory | None:
    """Of regions (begin, end). None where they are spread over more windows than there is room for."""
    masks = dict[int, int]()
    for begin, end in regions:
        if end > USER_END:  # the kernel's own, [vsyscall]
            continue
        piece, last = begin >> PIECE_BITS, (end - 1) >> PIECE_BITS
        while piece <= last:
            window, first = divmod(piece, _PIECES)
            count = min(last - piece + 1, _PIECES - first)
            masks[window] = masks.get(window, 0) | ((1 << count) - 1) << first
            piece += count
    places = {window % PLACES for window in masks}
    if len(masks) > WINDOWS or len(places) < len(masks):
        return None
    windows = [NO_WINDOW] * PLACES
    bits = b""
    for number, (window, mask) in enumerate(sorted(masks.items())):
        windows[window % PLACES] = window << 8 | number
        bits += mask.to_bytes(_PIECES // 8, "little")
    return ExecutableMemory(windows=tuple(windows), bits=bits.ljust(WINDOWS * _PIECES // 8, b"\0"))
