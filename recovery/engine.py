# SPDX-License-Identifier: Apache-2.0
"""The commands of the engine that a recovery needs."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class EngineFailed(Exception):
    """A command of the engine failed; the text is what it printed."""


class Locked(Exception):
    """Another command holds the lock of the stack, or died with it; the text is the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of the program in `directory`; `config_file` in the place of `Pulumi.<stack>.yaml`."""

    name: str
    directory: Path
    config_file: Path | None = None

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._run("stack", "export"))
        return state

    def config(self, key: str) -> str | None:
        try:
            return self._run("config", "get", key, *self._config()).strip()
        except EngineFailed:
            return None

    def unlock(self) -> None:
        self._run("cancel", "--yes")

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Raises Locked."""
        self._run("stack", "import", "--force", given=json.dumps(state))  # --force: with operations under way

    def refresh(self) -> None:
        """Raises Locked."""
        self._run("refresh", "--yes", "--skip-preview", *self._config())

    def _config(self) -> list[str]:
        return ["--config-file", str(self.config_file)] if self.config_file else []

    def _run(self, *arguments: str, given: str = "") -> str:
        command = ["pulumi", "--non-interactive", *arguments, "--stack", self.name]
        done = subprocess.run(command, cwd=self.directory, input=given, capture_output=True, text=True)
        if done.returncode:
            printed = (done.stdout + done.stderr).strip()
            raise (Locked if "currently locked" in printed else EngineFailed)(printed)
        return done.stdout
