# SPDX-License-Identifier: Apache-2.0
"""What `gpuheap record` prints at its end: each process's memory by kind and device, its top functions, and notes.

The table is of one kind, device memory where there is some, on all GPUs together. The other kinds have a line each;
their functions are in the profile.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gpuheap.cli.render import console, function_table, printable, say
from gpuheap.heap.functions import by_function, heaviest
from gpuheap.heap.model import MemoryKind, Process, Totals
from gpuheap.heap.quantities import bytes_text, count_text
from gpuheap.heap.samples import of_recording
from gpuheap.heap.totals import Group, by_process, total
from gpuheap.heap.words import kind_rank, kind_text, memory_text, process_text
from gpuheap.node.recording import End, Recording
from gpuheap.stacks.display import Detail, shown

TOP_FUNCTIONS: Final = 12
TOP_PROCESSES: Final = 8
_ALLOCATED, _IN_USE = 1, 3  # places of the bytes among the four values


def show(recording: Recording, note_lines: Sequence[str]) -> None:
    groups = by_process(recording.reading.totals)
    if not groups:
        say(f"no GPU memory was allocated in {recording.duration_ns / 1e9:.1f} s")
    order = sorted({group.process for group in groups}, key=lambda process: _weight(process, groups))
    for process in order[:TOP_PROCESSES]:
        _show_process(recording, process, groups)
    if len(order) > TOP_PROCESSES:
        say(f"{count_text(len(order) - TOP_PROCESSES, 'more process', 'more processes')} in the profile")
    for note in note_lines:
        say(f"note: {note}")


def table_kind(groups: Mapping[Group, Totals]) -> MemoryKind:
    """The kind of one process whose functions are shown: device memory if it ever had some, else the heaviest."""

    def weight(kind: MemoryKind) -> tuple[int, ...]:
        held, allocated = _of_kind(groups, kind)
        return -held, -allocated, kind_rank(kind)

    kinds = {group.kind for group in groups}
    return MemoryKind.DEVICE if MemoryKind.DEVICE in kinds else min(kinds, key=weight)


def _show_process(recording: Recording, process: Process, groups: Mapping[Group, Totals]) -> None:
    own = {group: totals for group, totals in groups.items() if group.process == process}
    kind = table_kind(own)
    moment = _moment(recording, process)
    for group in sorted(own, key=lambda group: _line_weight(group, own[group], kind)):
        say(f"{process_text(process)}: {_line(group, own[group], moment)}")
    held, allocated = _of_kind(own, kind)
    several = len({group.kind for group in own}) > 1
    measure = _IN_USE if held else _ALLOCATED
    if not held:
        nothing = f"no {kind_text(kind)}" if several else "nothing"
        say(f"{nothing} was in use; the functions below are those that allocated")
    elif len(own) > 1:
        say(f"the functions below are those of {kind_text(kind)}{_everywhere(own, kind)}")
    sites = {
        site: one
        for site, one in recording.reading.totals.items()
        if site.process == process and site.kind is kind
    }
    # What asks for memory in the end is always CUDA or a framework: the table has who called these.
    rows = by_function(
        (shown(site.stack, Detail.FOLDED), values) for site, values in of_recording(sites).items()
    )
    terminal = console()
    terminal.print(printable(""))
    terminal.print(function_table(heaviest(rows, measure, TOP_FUNCTIONS), measure, held or allocated))
    terminal.print(printable(""))


def _line(group: Group, totals: Totals, moment: str) -> str:
    return (
        f"{bytes_text(totals.held_bytes)} of {memory_text(group.kind, group.device.text)} in use {moment}, "
        f"by {count_text(totals.held_objects, 'allocation')}; "
        f"allocated in all {bytes_text(totals.allocated_bytes)}, "
        f"by {count_text(totals.allocated_objects, 'allocation')}"
    )


def _moment(recording: Recording, process: Process) -> str:
    if process in recording.reading.exited:
        return "when it ended"
    if recording.end is End.STOPPED:
        return "when the recording was stopped"
    return "at the end of the recording"


def _everywhere(groups: Mapping[Group, Totals], kind: MemoryKind) -> str:
    return " on all GPUs" if len({group.device for group in groups if group.kind is kind}) > 1 else ""


def _of_kind(groups: Mapping[Group, Totals], kind: MemoryKind) -> tuple[int, int]:
    """Bytes held, and allocated, on all devices."""
    sums = total(totals for group, totals in groups.items() if group.kind is kind)
    return sums.held_bytes, sums.allocated_bytes


def _weight(process: Process, groups: Mapping[Group, Totals]) -> tuple[int, ...]:
    """Processes come in the order of their device memory; those that are equal in it, of each further kind."""
    own = {group: totals for group, totals in groups.items() if group.process == process}
    sums = [_of_kind(own, kind) for kind in MemoryKind]
    return (*(-held for held, _ in sums), *(-allocated for _, allocated in sums), process.pid)


def _line_weight(group: Group, totals: Totals, first: MemoryKind) -> tuple[object, ...]:
    """Lines of the kind that has the table come first."""
    rank = kind_rank(group.kind)
    return group.kind is not first, rank, -totals.held_bytes, -totals.allocated_bytes, group.device.text
