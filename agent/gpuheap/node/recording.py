# SPDX-License-Identifier: Apache-2.0
"""Records processes: poll the tracer until they end, somebody asks to stop, or the time is over; then one reading.

Also says in sentences what the numbers of a recording do not cover; they go into the file and onto the terminal.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from gpuheap.heap.model import Process, Reading
from gpuheap.heap.quantities import count_text, cuda_result_text
from gpuheap.heap.samples import of_recording
from gpuheap.node.source import Source
from gpuheap.profile.build import build, loss_notes
from gpuheap.profile.model import FILE_LABELS, Profile

POLL_SECONDS: Final = 0.02
"""The longest wait in the tracer, and so how long after Ctrl-C the reading can be: a signal does not end the wait."""


class Watched(Protocol):
    def ended(self) -> bool: ...


class End(Enum):
    """Why a recording ended."""

    PROCESS_ENDED = auto()
    STOPPED = auto()
    TIME_OVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    reading: Reading
    duration_ns: int
    end: End


def record(source: Source, watched: Watched, *, stop: threading.Event, seconds: float | None) -> Recording:
    """Blocks until the end, whichever comes first. `seconds` None: no limit."""
    began = time.monotonic()
    while True:
        if stop.is_set():
            end = End.STOPPED
            break
        if watched.ended():
            end = End.PROCESS_ENDED
            break
        left = None if seconds is None else began + seconds - time.monotonic()
        if left is not None and left <= 0:
            end = End.TIME_OVER
            break
        source.poll(POLL_SECONDS if left is None else min(POLL_SECONDS, left))
    if end is not End.STOPPED:
        source.poll(0)  # what the kernel has reported meanwhile; after Ctrl-C the moment itself counts
    reading = source.read()
    return Recording(reading=reading, duration_ns=round((time.monotonic() - began) * 1e9), end=end)


def end_notes(reading: Reading) -> tuple[str, ...]:
    """What "in use" means for processes that have ended."""
    ended = {site.process for site in reading.totals} & reading.exited
    return tuple(
        f"{_name(process)} ended: shown as in use is what it held when it ended"
        for process in sorted(ended, key=lambda process: (process.pid, process.start_ns, process.generation))
    )


def notes(reading: Reading, joined_late: Sequence[int]) -> tuple[str, ...]:
    """What is missing and what failed. `joined_late` are pids that ran before the recording began."""
    late = [
        f"pid {pid} ran before: what it allocated before the recording began is not seen"
        for pid in joined_late
    ]
    failed = [
        f"{_name(process)}: {count_text(count, 'allocation call')} failed with {cuda_result_text(code)}"
        for (process, code), count in sorted(
            reading.failures.items(), key=lambda entry: (entry[0][0].pid, entry[0][0].start_ns, entry[0][1])
        )
    ]
    return (*late, *failed, *loss_notes(reading.losses))


def profile(recording: Recording, note_lines: Sequence[str]) -> Profile:
    """What the file holds; `note_lines` come after those on processes that have ended."""
    return build(
        of_recording(recording.reading.totals),
        label_names=FILE_LABELS,
        time_unix_ns=recording.reading.taken_unix_ns,
        duration_ns=recording.duration_ns,
        notes=(*end_notes(recording.reading), *note_lines),
    )


def _name(process: Process) -> str:
    return f"{process.name} (pid {process.pid})"
