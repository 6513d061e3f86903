# SPDX-License-Identifier: Apache-2.0
"""The processes that a language host runs for its engine: started, streamed, and ended with their call."""

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from localcloud.plugin.language.prepared import VARIABLE, Program, RunningProgram

CHUNK_BYTES: Final = 64 * 1024
GRACE_SECONDS: Final = 2.0


Process = subprocess.Popen[bytes] | RunningProgram


class Written(NamedTuple):
    """A piece of a program's output."""

    data: bytes
    to_stderr: bool


class Processes:
    """All running programs of one host."""

    def __init__(self) -> None:
        self._running: set[Process] = set()
        self._lock = threading.Lock()
        self._ending = False

    def run(
        self, command: Sequence[str], context: grpc.ServicerContext, *, environment: Mapping[str, str]
    ) -> int:
        """Run a program whose output goes where the host's own goes, which the engine shows; its exit code."""
        process = _started(command, environment)
        self._watch(process, context)
        return self._wait(process)

    def stream(
        self,
        command: Sequence[str],
        context: grpc.ServicerContext,
        *,
        environment: Mapping[str, str],
        folder: Path,
    ) -> Iterator[Written | int]:
        """Yields what the program writes as it writes it, and its exit code at the end."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
            cwd=folder,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._watch(process, context)
        with process, selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    if chunk := os.read(key.fd, CHUNK_BYTES):
                        yield Written(data=chunk, to_stderr=key.fileobj is process.stderr)
                    else:
                        selector.unregister(key.fileobj)
            yield self._wait(process)

    def end(self) -> None:
        """End all of them; those that do not listen are killed a little later."""
        with self._lock:
            self._ending = True
            running = list(self._running)
        for process in running:
            _end(process)

    def _watch(self, process: Process, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._running.add(process)
            ending = self._ending
        # True is "the call will tell": otherwise it is over, or the host is ending, and nobody else would.
        if ending or not context.add_callback(lambda: _end(process)):
            _end(process)

    def _wait(self, process: Process) -> int:
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        return code


def _started(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    """By the Python that has imported the SDKs already, where there is one, and the program asks for no other."""
    python, unbuffered, script, *arguments = command
    prepared = os.environ.get(VARIABLE)
    if prepared and unbuffered == "-u" and python == sys.executable:
        program = Program(script=script, arguments=arguments, environment=environment, folder=str(Path.cwd()))
        return RunningProgram(prepared, program)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)


def _end(process: Process) -> None:
    """Ask the process and those that it started to end, and make them if they do not."""
    if process.poll() is not None:
        return
    # It leads a group of its own: the interrupt that the engine sends to its host's group is not meant for programs.
    _signal(process, signal.SIGTERM)

    def kill() -> None:
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)

    threading.Thread(target=kill).start()


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError):  # it ends at this moment
        os.killpg(process.pid, number)
