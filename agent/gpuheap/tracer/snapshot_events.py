# SPDX-License-Identifier: Apache-2.0
"""Copies of stacks as the kernel side sends them, made to what the unwinder takes: as they would be without probes."""

from itertools import pairwise

from gpuheap.stacks.snapshot import Registers, Snapshot
from gpuheap.stacks.unwinder import Unwound

from .abi import PAGE_BYTES, SIGNAL_PAGES, SnapshotEvent


def snapshot_of(event: SnapshotEvent, memory: bytes) -> Snapshot:
    """`memory` are the pages that follow the event."""
    registers = event.registers
    more: tuple[tuple[int, bytes], ...] = ()
    if event.other:  # a signal's handler on a stack of its own
        pages = memory[SIGNAL_PAGES * PAGE_BYTES :][: event.other_pages * PAGE_BYTES]
        begin, copy = _copy(event, pages, event.other, event.other_end)
        more = ((begin, copy),)
    _, stack = _copy(event, memory[: event.pages * PAGE_BYTES], registers.sp, event.end)
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
        stack=stack,
        more=more,
    )


def evaluations(event: SnapshotEvent, unwound: Unwound) -> tuple[int, ...] | None:
    """Places of the frames that evaluate Python functions, counted from the root; None where that is not known."""
    if not event.all_entered:
        return None
    outermost = len(unwound.addresses) - 1
    entries = event.entries[: event.entered]
    reaches = pairwise(unwound.stack_pointers)
    inwards = (
        number for number, (begin, end) in enumerate(reaches) if any(begin <= one < end for one in entries)
    )
    return tuple(sorted(outermost - number for number in inwards))


def _copy(event: SnapshotEvent, pages: bytes, address: int, end: int) -> tuple[int, bytes]:
    """Of one stack, from this address on. The kernel says which return addresses probes have taken."""
    begin = address & ~(PAGE_BYTES - 1)
    stack = bytearray(pages[address - begin : max(0, min(end - begin, len(pages)))])
    for taken in event.returns[: event.taken]:
        place = taken.stack - address
        there = stack[place : place + 8] if 0 <= place <= len(stack) - 8 else b""
        # One that was left by longjmp has no trampoline on the stack any more.
        is_taken = there and int.from_bytes(there, "little") & ~(PAGE_BYTES - 1) == event.trampoline
        if event.trampoline and is_taken:
            stack[place : place + 8] = taken.address.to_bytes(8, "little")
    return address, bytes(stack)
