# SPDX-License-Identifier: Apache-2.0
"""An out-of-memory failure in one sentence: who asked for how much, and who held the memory then. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpuheap.heap.functions import NO_STACK, by_function, heaviest
from gpuheap.heap.model import UNKNOWN_DEVICE, Holding, MemoryKind, OutOfMemory, Site
from gpuheap.heap.quantities import bytes_text
from gpuheap.heap.words import function_text, kind_text, on_device, place_text, process_text
from gpuheap.stacks.display import Detail, shown

SHOWN: Final = 3
"""A framework that frees its cache and tries again fails many times in a row; the last failures tell the story."""


def out_of_memory_notes(failures: Sequence[OutOfMemory]) -> tuple[str, ...]:
    """The last few, oldest first."""
    return tuple(_note(failure) for failure in failures[-SHOWN:])


def competing_kind(kind: MemoryKind) -> MemoryKind:
    """The kind that takes the room which an allocation of this kind lacks: other kinds live on the GPU beside it."""
    return kind if kind is MemoryKind.PINNED_HOST else MemoryKind.DEVICE


def _note(failure: OutOfMemory) -> str:
    site = failure.site
    kind = competing_kind(site.kind)
    what = "" if site.kind is MemoryKind.DEVICE else f" of {kind_text(site.kind)}"
    leaf = (shown(site.stack, Detail.FOLDED) or (NO_STACK,))[-1]
    return (
        f"{process_text(site.process)}: out of memory{on_device(site.device.text)}: "
        f"asked for {bytes_text(failure.asked_bytes)}{what} in {place_text(leaf)}; {_held(failure, kind)}"
    )


def _held(failure: OutOfMemory, kind: MemoryKind) -> str:
    """Of the device that had no room; where that is not known, of all devices."""
    device = failure.site.device
    known = device != UNKNOWN_DEVICE
    held = {
        one: holding
        for one, holding in failure.holdings.items()
        if one.kind is kind and (one.device == device or not known) and holding.bytes
    }
    what = "" if kind is failure.site.kind else f" of {kind_text(kind)}"
    if not held:
        return f"nothing{what} was held then"
    total = sum(holding.bytes for holding in held.values())
    about = "" if failure.exact else "about "
    where = " on all GPUs" if len({one.device for one in held}) > 1 else ""
    text = f"held {about}{bytes_text(total)}{what}{where} then, most by {_most(held)}"
    elsewhere = sum(
        holding.bytes
        for one, holding in failure.holdings.items()
        if known and one.kind is kind and one.device == UNKNOWN_DEVICE
    )
    return f"{text}; {bytes_text(elsewhere)} more on an unknown GPU" if elsewhere else text


def _most(held: Mapping[Site, Holding]) -> str:
    """The function that held most by itself, with its heaviest line."""
    stacks = ((shown(site.stack, Detail.FOLDED), (holding.bytes,)) for site, holding in held.items())
    (row,) = heaviest(by_function(stacks), 0, 1)
    return f"{function_text(row.function, row.file, row.heaviest_line(0))} {bytes_text(row.own[0])}"
