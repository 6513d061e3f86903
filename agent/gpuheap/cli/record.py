# SPDX-License-Identifier: Apache-2.0
"""`gpuheap record`: profile a command, or processes that run."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from gpuheap.cli.render import console, function_table, printable, say
from gpuheap.heap.functions import by_function, heaviest
from gpuheap.heap.model import MemoryKind, Process
from gpuheap.heap.quantities import bytes_text, count_text
from gpuheap.heap.samples import of_recording
from gpuheap.heap.totals import by_process
from gpuheap.node.child import Child, Others
from gpuheap.node.recording import End, Recording, Watched, notes, profile, record
from gpuheap.profile.encode import encode_gzip
from gpuheap.profile.files import OutputFile

TOP_FUNCTIONS: Final = 12
TOP_PROCESSES: Final = 8
_ALLOCATED, _IN_USE = 1, 3  # places of the bytes among the four values


def command(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND…", help="The command to record.")
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option("--pid", help="Record this process instead; may be given several times."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The profile.")] = Path("gpuheap.pb.gz"),
    duration: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Stop recording after this time.")
    ] = None,
) -> None:
    """Record GPU memory of a command or of running processes (each by itself: not the processes that they start).

    Recording ends with the process, with Ctrl-C, or after --duration; the profile then shows what is in use, or, of a
    process that has ended, what it held when it ended. The top functions are printed on standard error. A command that
    still runs after --duration is left to end by itself; its exit code is passed on.
    """
    if bool(command) == bool(pid):
        raise typer.BadParameter("give either a command, after --, or --pid")
    with OutputFile(output) as out:
        if command:
            raise typer.Exit(_record_command(command, out, duration))
        _record_pids(pid or [], out, duration)


def _record_command(command: Sequence[str], out: OutputFile, duration: float | None) -> int:
    child = Child.prepare(command)
    try:
        _record([child.pid], child, out, duration, child=child)
        if not child.ended():
            say(f"waiting for {command[0]} (pid {child.pid}) to end")
        child.wait()
    finally:
        child.abandon()
    return child.exit_code


def _record_pids(pids: Sequence[int], out: OutputFile, duration: float | None) -> None:
    others = Others(pids)
    try:
        _record(pids, others, out, duration, child=None)
    finally:
        others.close()


def _record(
    pids: Sequence[int], watched: Watched, out: OutputFile, duration: float | None, *, child: Child | None
) -> None:
    from gpuheap.tracer import Tracer, TracerOptions  # loads libbpf: `report` does without

    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the command by itself, as it is in the same process group; a SIGTERM is for it, too.
        if child is not None and number == signal.SIGTERM:
            child.signal(signal.SIGTERM)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    commands = (child.command[0],) if child is not None else ()
    with Tracer(TracerOptions(pids=frozenset(pids), commands=commands)) as tracer:
        if child is not None:
            child.start()
        else:
            say(f"recording {', '.join(f'pid {pid}' for pid in pids)}; Ctrl-C ends it")
        recording = record(tracer, watched, stop=stop, seconds=duration)
    note_lines = notes(recording.reading, joined_late=[] if child is not None else pids)
    out.commit(encode_gzip(profile(recording, note_lines)))
    _show(recording, note_lines)
    say(f"wrote {out.path}; `gpuheap report {out.path}` makes a page of it")


def _show(recording: Recording, note_lines: Sequence[str]) -> None:
    reading = recording.reading
    groups = by_process(reading.totals)
    order = sorted(
        groups, key=lambda key: (-groups[key].held_bytes, -groups[key].allocated_bytes, key[0].pid)
    )
    seconds = f"{recording.duration_ns / 1e9:.1f} s"
    if not order:
        say(f"no GPU memory was allocated in {seconds}")
    for key in order[:TOP_PROCESSES]:
        _show_process(recording, *key)
    if len(order) > TOP_PROCESSES:
        say(f"{count_text(len(order) - TOP_PROCESSES, 'more process', 'more processes')} in the profile")
    for note in note_lines:
        say(f"note: {note}")


def _show_process(recording: Recording, process: Process, kind: MemoryKind) -> None:
    reading = recording.reading
    totals = {
        site: one for site, one in reading.totals.items() if (site.process, site.kind) == (process, kind)
    }
    group = by_process(totals)[process, kind]
    if process in reading.exited:
        moment = "when it ended"
    elif recording.end is End.STOPPED:
        moment = "when the recording was stopped"
    else:
        moment = "at the end of the recording"
    say(
        f"{process.name} (pid {process.pid}): {bytes_text(group.held_bytes)} of {kind.value} memory in use {moment}, "
        f"by {count_text(group.held_objects, 'allocation')}; allocated in all {bytes_text(group.allocated_bytes)}, "
        f"by {count_text(group.allocated_objects, 'allocation')}"
    )
    measure = _IN_USE if group.held_bytes else _ALLOCATED
    if measure == _ALLOCATED:
        say("nothing was in use; the functions below are those that allocated")
    rows = by_function((site.stack, values) for site, values in of_recording(totals).items())
    total = group.held_bytes if measure == _IN_USE else group.allocated_bytes
    terminal = console()
    terminal.print(printable(""))
    terminal.print(function_table(heaviest(rows, measure, TOP_FUNCTIONS), measure, total))
    terminal.print(printable(""))
