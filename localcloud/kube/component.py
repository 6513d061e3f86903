# SPDX-License-Identifier: Apache-2.0
"""One program of the control plane or of a node as a child process that never outlives this one."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
LOG_TAIL_CHARACTERS: Final = 2000
_LIBC: Final = ctypes.CDLL(None)


class ComponentFailed(Exception):
    """A program ended or never became ready; the text holds the end of its log."""


class Component:
    """A running program; what it prints goes to `<logs>/<name>.log`.

    It has no environment but PATH, HOME (`folder`, where it runs) and what `environment` says.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        logs: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(folder),
                    **(environment or {}),
                },
                # Out of reach of a Ctrl-C in the terminal: the order of stopping is ours.
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 - only system calls; no other thread yet
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """Raise ComponentFailed if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise self.failure(f"ended with {code}")

    def failure(self, what: str) -> ComponentFailed:
        """The error that says `what` happened to it."""
        tail = self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        return ComponentFailed(f"{self.name} {what}; the end of {self.log}:\n{tail}")

    def kill(self) -> None:
        """End it at once: nothing of a local cloud is kept, and a graceful kube-apiserver takes seconds."""
        if self._process.poll() is None:
            self._process.kill()

    def wait(self) -> None:
        self._process.wait()


def _dies_with(parent: int) -> Callable[[], None]:
    """What a child runs first so that the kernel kills it when the thread that started it ends."""

    def arm() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call above
            os._exit(1)

    return arm
