# SPDX-License-Identifier: Apache-2.0
"""`gpuheap record`: profile a command, or processes that run."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from gpuheap.cli.render import say
from gpuheap.cli.summary import show
from gpuheap.heap.notes import notes
from gpuheap.node.child import Child, Others
from gpuheap.node.open_files import allow_many_open_files
from gpuheap.node.recording import Watched, profile, record
from gpuheap.profile.encode import encode_gzip
from gpuheap.profile.files import OutputFile


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
    allow_many_open_files()  # the command has the limit that it was to have
    with Tracer(TracerOptions(pids=frozenset(pids), commands=commands)) as tracer:
        if child is not None:
            child.start()
        else:
            say(f"recording {', '.join(f'pid {pid}' for pid in pids)}; Ctrl-C ends it")
        recording = record(tracer, watched, stop=stop, seconds=duration)
        # Before the probes are removed, which can take seconds.
        note_lines = notes(recording.reading)
        out.commit(encode_gzip(profile(recording, note_lines)))
        show(recording, note_lines)
        say(f"wrote {out.path}; `gpuheap report {out.path}` makes a page of it")
