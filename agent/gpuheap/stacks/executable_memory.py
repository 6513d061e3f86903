# SPDX-License-Identifier: Apache-2.0
"""Where a process has executable memory, as the kernel side looks it up: a bit for each piece of the address space.

Pure. The layout is that of `struct text` in bpf/gpuheap.h. It may say more than there is, never less: a word that is no
return address makes one stack look like two at most.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

PIECE_BITS: Final = 16
WINDOW_BITS: Final = 33
WINDOWS: Final = 4
PLACES: Final = 64
FACTOR_BITS: Final = 10
NO_WINDOW: Final = 0xFFFFFFFF
USER_END: Final = 1 << 47
_PIECES: Final = 1 << (WINDOW_BITS - PIECE_BITS)
_FACTORS: Final = range(1 << FACTOR_BITS, 1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableMemory:
    """`windows` by `place_of` their numbers: the number, and which part of `bits` is about it."""

    factor: int
    windows: tuple[int, ...]
    bits: bytes


def place_of(window: int, factor: int) -> int:
    return (window * factor >> FACTOR_BITS) % PLACES


def executable_memory(regions: Iterable[tuple[int, int]]) -> ExecutableMemory | None:
    """Of regions (begin, end). None where they are spread so widely that no factor keeps their windows apart.

    Windows for which there are no bits share the last ones.
    """
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
    factor = _factor(tuple(masks))
    if factor is None:
        return None
    windows, bits = [NO_WINDOW] * PLACES, [0] * WINDOWS
    for number, (window, mask) in enumerate(sorted(masks.items())):
        part = min(number, WINDOWS - 1)
        windows[place_of(window, factor)] = window << 8 | part
        bits[part] |= mask
    return ExecutableMemory(
        factor=factor,
        windows=tuple(windows),
        bits=b"".join(part.to_bytes(_PIECES // 8, "little") for part in bits),
    )


def _factor(windows: Sequence[int]) -> int | None:
    """One with which no window takes another one's place."""
    if len(windows) > PLACES:
        return None
    for factor in _FACTORS:
        if len({place_of(window, factor) for window in windows}) == len(windows):
            return factor
    return None
