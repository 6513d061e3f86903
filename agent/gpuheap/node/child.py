# SPDX-License-Identifier: Apache-2.0
"""Starts the command that is to be recorded, and other processes by pid, as something to wait for.

The command's process exists, stopped, before its program runs: the tracer can be told its pid and be ready, so that
no allocation is missed.
"""

import os
import select
import shutil
import signal
from collections.abc import Sequence
from typing import Final, Self

from gpuheap.node.errors import RecordError

SIGNAL_EXIT: Final = 128
"""A command that was ended by signal N is reported as 128 + N, as shells do it."""


class Child:
    """A command in this process's group, so that Ctrl-C in the terminal reaches both."""

    def __init__(self, pid: int, gate: int, failure: int, command: Sequence[str]) -> None:
        self.pid = pid
        self._gate = gate
        self._failure = failure
        self.command = command
        self._status: int | None = None

    @classmethod
    def prepare(cls, command: Sequence[str]) -> Self:
        """A process that waits to become `command`. Raises `RecordError` when there is no such command."""
        if shutil.which(command[0]) is None:
            raise RecordError(f"{command[0]}: no such command; it is looked for on PATH, or by its path")
        gate_read, gate_write = os.pipe()
        failure_read, failure_write = os.pipe()  # closed by a successful exec, as both are close-on-exec
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            _become(command, gate_read, failure_write)
        os.close(gate_read)
        os.close(failure_write)
        return cls(pid, gate_write, failure_read, command)

    def start(self) -> None:
        """Let the command run. Raises `RecordError` when the kernel does not take the program."""
        os.write(self._gate, b"x")
        os.close(self._gate)
        self._gate = -1
        with os.fdopen(self._failure, "rb") as pipe:
            code = pipe.read()
        if code:
            self.wait()
            raise RecordError(f"{self.command[0]}: cannot be run: {os.strerror(int(code))}")

    def abandon(self) -> None:
        """End a process that was prepared and never started."""
        if self._gate >= 0:
            os.close(self._gate)
            os.close(self._failure)
            self._gate = -1
            self.wait()

    def ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def wait(self) -> None:
        while self._status is None:
            _, self._status = os.waitpid(self.pid, 0)

    def signal(self, number: int) -> None:
        if not self.ended():
            os.kill(self.pid, number)

    @property
    def exit_code(self) -> int:
        """Of a command that has ended."""
        assert self._status is not None, "the command has not ended"
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else SIGNAL_EXIT - code


class Others:
    """Processes that run already. Raises `RecordError` when one does not exist or may not be watched."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._running: list[int] = []
        for pid in pids:
            try:
                self._running.append(os.pidfd_open(pid))
            except OSError as error:
                self.close()
                raise RecordError(f"pid {pid}: {error.strerror}") from error

    def ended(self) -> bool:
        """Whether all of them have ended."""
        waiting = select.poll()
        for descriptor in self._running:
            waiting.register(descriptor, select.POLLIN)
        return len(waiting.poll(0)) == len(self._running)

    def close(self) -> None:
        for descriptor in self._running:
            os.close(descriptor)
        self._running.clear()


def _become(command: Sequence[str], gate: int, failure: int) -> None:
    """In the new process: wait for the gate, then be the command. Never returns."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if os.read(gate, 1):  # nothing: the recorder gave up
            os.execvp(command[0], list(command))  # noqa: S606 (the command is what the user asked to run)
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(127)
