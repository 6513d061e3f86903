# SPDX-License-Identifier: Apache-2.0
"""What set-up prints: one line a step with its seconds, and a sign of life in long ones."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TextIO

LIVE_SECONDS: Final = 0.2
PLAIN_SECONDS: Final = 60.0
"""How often a running step may say something: on a terminal its line is redrawn; elsewhere, a log, each is a line."""


@dataclass(slots=True, kw_only=True)
class Step:
    """A running step. `says` shows how far it is; what comes too soon after the last is not shown."""

    title: str
    out: TextIO
    live: bool
    started: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def says(self, text: str) -> None:
        now = time.monotonic()
        if now - self._shown < (LIVE_SECONDS if self.live else PLAIN_SECONDS):
            return
        self._shown = now
        self._write(f"… {self.title}: {text}, {self.seconds:.0f} s", end="" if self.live else "\n")

    def ends(self, mark: str) -> None:
        self._write(f"{mark} {self.title}, {self.seconds:.1f} s", end="\n")

    def _write(self, line: str, *, end: str) -> None:
        self.out.write(f"\r\x1b[K{line[:200]}{end}" if self.live else f"{line}{end}")
        self.out.flush()


@contextmanager
def step(title: str, out: TextIO | None = None) -> Iterator[Step]:
    """Announce a step, time it, and say how it ended."""
    out = out or sys.stdout
    running = Step(title=title, out=out, live=out.isatty())
    running._write(f"… {title}", end="" if running.live else "\n")
    try:
        yield running
    except BaseException:
        running.ends("✗")
        raise
    running.ends("✓")
