# SPDX-License-Identifier: Apache-2.0
"""When an engine is killed, and an API server that does not answer any more."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud

QUIET_SECONDS: Final = 1.5


@dataclass(slots=True)
class Killer:
    """Due when requests hang that did not when the try began, and nothing else has happened for a moment: so that all
    that does not depend on each other hangs together. Collects the machine's command lines all the while.
    """

    store: Store
    command_lines: "CommandLines"
    before: set[str] = field(init=False)
    seen: tuple[int, int, int] = (0, 0, 0)
    since: float = 0.0

    def __post_init__(self) -> None:
        self.before = self.store.unanswered()

    def __call__(self) -> bool:
        self.command_lines.look()
        hung = self.store.unanswered()
        if hung <= self.before:
            return False
        now, seen = time.monotonic(), (len(hung), len(self.store.met()), len(self.store.events()))
        if seen != self.seen:
            self.seen, self.since = seen, now
        return now - self.since > QUIET_SECONDS


@contextmanager
def silenced(pid: int) -> Iterator[None]:
    """The process accepts connections, and never answers."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def api_server(cloud: LocalCloud) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_text().split("\0")
            if "kube-apiserver" in arguments and any(str(cloud.state) in argument for argument in arguments):
                return int(process.name)
    raise AssertionError("the local cloud has an API server")


@dataclass(slots=True)
class CommandLines:
    """Those of the machine's processes, of each until it stays the same: a new process has that of who started it."""

    seen: set[str] = field(default_factory=set)
    _last: dict[str, str] = field(default_factory=dict)
    _settled: set[str] = field(default_factory=set)

    def look(self) -> None:
        there = {process for each in Path("/proc").iterdir() if (process := each.name).isdigit()}
        self._settled &= there
        for process in there - self._settled:
            with suppress(OSError):  # it has ended
                line = Path(f"/proc/{process}/cmdline").read_text(errors="replace")
                if self._last.get(process) == line:
                    self._settled.add(process)
                self._last[process] = line
                self.seen.add(line)
