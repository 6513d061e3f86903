# SPDX-License-Identifier: Apache-2.0
"""When an engine is killed and what is done after that; an API server that does not answer any more; credentials."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Engine

TOKEN: Final = re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}")
"""A JSON Web Token: what Azure and Grafana take for credentials."""

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


def recovery(engine: Engine, *more: str) -> subprocess.CompletedProcess[str]:
    """What the README says to do after a `pulumi up` that was killed."""
    options = ["--stack", engine.stack, "--config-file", str(engine.config_file), *more]
    return subprocess.run(
        [sys.executable, "-m", "recovery", *options],
        cwd=CHECKOUT,
        env=engine.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def credentials_in(texts: Iterable[str], cloud: LocalCloud, *more: str) -> list[str]:
    """The cluster's, those of the identity that deploys, `more` of them, and tokens: those that stand in one of the
    texts, in a log of the cloud, or in what the engine keeps: the state, those before it, and its history.
    """
    kubeconfig = yaml.safe_load(cloud.endpoints.kubeconfig.read_text())
    secrets = [str(value) for user in kubeconfig["users"] for value in user["user"].values()]
    assert secrets
    secrets += [cloud.endpoints.identity_header, *more]
    kept = [file for file in (cloud.state / "pulumi-state" / ".pulumi").rglob("*") if file.is_file()]
    logs = list((cloud.state / "logs").iterdir())
    assert min(len(kept), len(logs)) > 4
    searched = [*texts, *(file.read_text(errors="replace") for file in (*kept, *logs))]
    found = [secret for text in searched for secret in secrets if secret in text]
    return found + [token for text in searched for token in TOKEN.findall(text)]
