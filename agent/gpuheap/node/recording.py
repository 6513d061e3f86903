# SPDX-License-Identifier: Apache-2.0
"""Records processes: poll the tracer until they end, somebody asks to stop, or the time is over; then one reading."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from gpuheap.heap.model import Reading
from gpuheap.heap.notes import end_notes
from gpuheap.heap.samples import of_recording
from gpuheap.node.source import Source
from gpuheap.profile.build import build
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


def profile(recording: Recording, note_lines: Sequence[str]) -> Profile:
    """What the file holds; `note_lines` come after those on processes that have ended."""
    return build(
        of_recording(recording.reading.totals),
        label_names=FILE_LABELS,
        time_unix_ns=recording.reading.taken_unix_ns,
        duration_ns=recording.duration_ns,
        notes=(*end_notes(recording.reading), *note_lines),
    )
