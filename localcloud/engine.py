# SPDX-License-Identifier: Apache-2.0
"""Runs the real Pulumi engine on a local cloud: the commands a user types, with what they print.

Owns the command lines. What a program declares, and whether that is right, is not decided here.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localcloud.cloud import LocalCloud

CHECKOUT: Final = Path(__file__).resolve().parent.parent

_PULUMI: Final = ("pulumi", "--non-interactive")
_UP: Final = ("up", "--yes", "--skip-preview")
_DESTROY: Final = ("destroy", "--yes", "--skip-preview")
_ASKED_EVERY_SECONDS: Final = 0.2


class EngineFailed(Exception):
    """A `pulumi` command ended with an error; the text holds the command and all that it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command came to its end, and what it had printed until then."""

    killed: bool
    failed: bool
    printed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One stack of the program in `directory`, its state kept in the local cloud.

    `config_file` replaces `Pulumi.<stack>.yaml`, so that a run can have its own configuration and the checkout stays
    as it is. `passphrase` encrypts the secrets of the state, and must fit the file's salt, if it has one. `on_line` is
    called with each line as the engine prints it.
    """

    cloud: LocalCloud
    stack: str = "dev"
    directory: Path = CHECKOUT
    config_file: Path | None = None
    passphrase: str = ""
    on_line: Callable[[str], None] | None = None

    def environment(self) -> dict[str, str]:
        """Of every command."""
        return {**self.cloud.environment(), "PULUMI_CONFIG_PASSPHRASE": self.passphrase}

    def create(self) -> None:
        """Make the stack if the state has none of its name."""
        known = json.loads(self._run("stack", "ls", "--json"))
        if self.stack not in {stack["name"].rsplit("/")[-1] for stack in known}:
            self._run("stack", "init", self.stack)

    def up(self) -> str:
        return self._change(*_UP)

    def refresh(self, *, expect_no_changes: bool = False) -> str:
        """Raises EngineFailed for an unexpected change."""
        flags = ["--expect-no-changes"] if expect_no_changes else []
        return self._change("refresh", "--yes", "--skip-preview", *flags)

    def refresh_preview(self) -> str:
        """What a refresh would change, as `pulumi refresh --preview-only` prints it; the state stays as it is."""
        return self._change("refresh", "--preview-only", "--color", "never")

    def destroy(self) -> str:
        return self._change(*_DESTROY)

    def preview(self, *, expect_no_changes: bool = False, policy_pack: Path | None = None) -> dict[str, Any]:
        """The plan as `pulumi preview --json` gives it.

        Raises EngineFailed for an unexpected change, and for what a mandatory policy of the pack refuses.
        """
        flags = ["--expect-no-changes"] if expect_no_changes else []
        flags += ["--policy-pack", str(policy_pack)] if policy_pack else []
        plan: dict[str, Any] = json.loads(self._change("preview", "--json", *flags))
        return plan

    def preview_diff(self) -> str:
        """What `pulumi preview --diff` prints."""
        return self._change("preview", "--diff", "--color", "never")

    def preview_text(self, *, policy_pack: Path, policy_config: Path | None = None) -> str:
        """What `pulumi preview` prints. Raises EngineFailed for what a mandatory policy of the pack refuses."""
        flags = ["--policy-pack-config", str(policy_config)] if policy_config else []
        return self._change("preview", "--color", "never", "--policy-pack", str(policy_pack), *flags)

    def outputs(self, *, show_secrets: bool = False) -> dict[str, Any]:
        secrets = ["--show-secrets"] if show_secrets else []
        outputs: dict[str, Any] = json.loads(
            self._run("stack", "output", "--json", "--stack", self.stack, *secrets)
        )
        return outputs

    def state(self) -> dict[str, Any]:
        """The stack's checkpoint, as it is stored: secrets stay encrypted."""
        state: dict[str, Any] = json.loads(self._run("stack", "export", "--stack", self.stack))
        return state

    def up_killed_when(self, due: Callable[[], bool], *flags: str) -> "Ended":
        """`up`, killed as by the kernel as soon as `due`, which is asked every now and then."""
        return self._killed_when(due, *_UP, *flags)

    def destroy_killed_when(self, due: Callable[[], bool], *flags: str) -> "Ended":
        """`destroy`, as `up_killed_when`."""
        return self._killed_when(due, *_DESTROY, *flags)

    def _killed_when(self, due: Callable[[], bool], command: str, *flags: str) -> "Ended":
        with (
            tempfile.TemporaryFile("w+") as printed,
            subprocess.Popen(
                [*_PULUMI, command, *self._options(), *flags],
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            killed = False
            while process.poll() is None and not killed:
                if killed := due():
                    process.kill()
                else:
                    time.sleep(_ASKED_EVERY_SECONDS)
            code = process.wait()
            if killed:
                _end_session(process.pid)
            printed.seek(0)
            return Ended(killed=killed, failed=code != 0, printed=printed.read())

    def _change(self, command: str, *flags: str) -> str:
        return self._run(command, *self._options(), *flags)

    def _options(self) -> list[str]:
        config = ["--config-file", str(self.config_file)] if self.config_file else []
        return ["--stack", self.stack, *config]

    def _run(self, *arguments: str) -> str:
        command = [*_PULUMI, *arguments]
        lines: list[str] = []
        # Not a pipe: nobody reads it while the output is being read.
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if self.on_line:
                    self.on_line(line.rstrip())
            code = process.wait()
            errors.seek(0)
            if code:
                printed = "".join(lines) + errors.read()
                raise EngineFailed(f"{' '.join(command)} ended with {code}:\n{printed}")
        return "".join(lines)


def _end_session(leader: int) -> None:
    """What a killed engine has started goes on by itself, each in a process group of its own."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == leader:
                os.kill(int(process.name), signal.SIGKILL)
