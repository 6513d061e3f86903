# SPDX-License-Identifier: Apache-2.0
"""A Python that has imported the SDKs already, and of which programs become copies: `python -m
localcloud.plugin.language.prepared DESCRIPTOR MODULE…`.

A program that declares a large stack spends most of its processor time on importing the SDKs, and so do the plugins
that are written in Python. Who runs one stack again and again, as the tests do, starts this once and names its socket
in `GPUHEAP_PREPARED_PYTHON`; the language host then runs programs by it, and the launchers of a Pulumi home plugins
(`plugin/copied.py`). A copy differs from a new process in nothing but these imports: arguments, environment, folder,
output and session are its own; and it ends with who asked for it. What the program itself consists of is never
imported beforehand.
"""

import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "GPUHEAP_PREPARED_PYTHON"
NUMBER_BYTES: Final = 4
SDKS: Final = (
    "pulumi.policy",
    "pulumi_docker_build",
    "pulumi_random",
    *(
        f"pulumi_kubernetes.{group}"
        for group in (
            "admissionregistration.v1",
            "apps.v1",
            "batch.v1",
            "core.v1",
            "helm.v3",
            "meta.v1",
            "networking.v1",
            "scheduling.v1",
        )
    ),
    "azure.identity",
    "azure.mgmt.dashboard",
    "azure.mgmt.network",
    *(f"pydantic.{part}" for part in ("config", "functional_validators", "main", "types")),
    "zoneinfo",
    *(
        f"localcloud.{part}"
        for part in (
            "azure.cluster_effects",
            "azure.provider",
            "plugin.docker_build",
            "plugin.language.host",
            "plugin.random_values",
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python script to run with its arguments, or a module, which is looked for in the folder `search` first."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    script: str = ""
    module: str = ""
    search: str = ""


class RunningProgram:
    """A program that the prepared Python at `address` runs; its output goes where this process's own goes.

    To be waited for and ended like a `subprocess.Popen`. Raises OSError where there is no such Python.
    """

    def __init__(self, address: str, program: Program) -> None:
        self._code = 0
        self._ended = threading.Event()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        text = json.dumps(asdict(program)).encode()
        socket.send_fds(connection, [_number(len(text))], [1, 2])
        connection.sendall(text)
        self.pid = int.from_bytes(_received(connection, NUMBER_BYTES), signed=True)
        threading.Thread(target=self._wait_for_the_end, args=(connection,), daemon=True).start()

    def poll(self) -> int | None:
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; of what a signal ended, its negative number. Raises subprocess.TimeoutExpired."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("the program", timeout or 0.0)
        return self._code

    def _wait_for_the_end(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._code = int.from_bytes(_received(connection, NUMBER_BYTES), signed=True)
            except EOFError:
                self._code = -signal.SIGKILL  # it went with the prepared Python
        self._ended.set()


@contextmanager
def prepared_python(address: Path, modules: Sequence[str] | None = None) -> Iterator[None]:
    """A prepared Python at that socket. Who asks before it is ready, waits.

    It imports `modules`, or all that the stack of this checkout uses of the SDKs.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(address))
    listening.listen()
    handed = listening.fileno()
    command = [sys.executable, "-u", "-m", __name__, str(handed), *(modules or (*SDKS, *_azure_native()))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[handed]) as process:
        listening.close()
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    """Ends when its standard input does, which is held by who started it."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        # A module of an SDK that Pulumi generates is empty until it is asked for a name that it may have.
        getattr(importlib.import_module(module), "__all__", None)
    gc.freeze()  # pages that are not written to are shared with the copies
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        asking, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _run(_taken(asking))
            return
        asking.close()
        _bury()


def _azure_native() -> set[str]:
    """The modules of the types that the local cloud knows."""
    from localcloud.azure.known_types import KNOWN

    return {f"pulumi_azure_native.{token.partition(':')[0]}" for token in KNOWN}


def _taken(asking: socket.socket) -> Program:
    """In a process of its own, the program that was asked for; the process that stays behind tells how it ends."""
    length, (output, errors), _, _ = socket.recv_fds(asking, NUMBER_BYTES, 2)
    program = Program(**json.loads(_received(asking, int.from_bytes(length))))
    pid = os.fork()
    if pid == 0:
        asking.close()
        os.setpgid(0, 0)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        return program
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)  # whichever of the two is first
    os.close(output)
    os.close(errors)
    with suppress(ConnectionError):
        asking.sendall(_number(pid))
        either: list[Any] = [os.pidfd_open(pid), asking]
        if asking in select.select(either, [], [])[0]:  # closed: whoever asked has ended
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        asking.sendall(_number(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def _run(program: Program) -> None:
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.folder)
    sys.argv = [program.script, *program.arguments]
    sys.path[0] = program.search or str(Path(program.script).parent)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(write_through=True)
    if program.module:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program.script, run_name="__main__")


def _bury() -> None:
    """Wait for the processes that stayed behind and have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, signed=True)


def _received(connection: socket.socket, length: int) -> bytes:
    """Raises EOFError."""
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


if __name__ == "__main__":
    main()
