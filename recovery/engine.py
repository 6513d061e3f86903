# SPDX-License-Identifier: Apache-2.0
"""The commands of the engine that a recovery needs."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit


class EngineFailed(Exception):
    """A command of the engine failed; the text is what it printed."""


class NoEngine(Exception):
    """There is no engine; the text says what to do."""


class Locked(Exception):
    """Another command holds the lock of the stack or writes its state, or died with that; the text is the engine's."""


SIGNS_OF_ANOTHER: Final = ("currently locked", "failed to load checkpoint: EOF")
"""The second: of a state in files, what the engine notes beside it (`.attrs`) was begun and not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of the program in `directory`; `config_file` in the place of `Pulumi.<stack>.yaml`."""

    name: str
    directory: Path
    config_file: Path | None = None

    def state(self, *, show_secrets: bool = False) -> dict[str, Any]:
        """In clear it stays in this process."""
        secrets = ["--show-secrets"] if show_secrets else []
        state: dict[str, Any] = json.loads(self._run("stack", "export", *secrets))
        return state

    def config(self, key: str) -> str | None:
        try:
            return self._run("config", "get", key, *self._config()).strip()
        except EngineFailed:
            return None

    def unlock(self) -> None:
        """Nothing of a command that died is in the way any more."""
        self._drop_unwritten_notes()
        self._run("cancel", "--yes")

    def _drop_unwritten_notes(self) -> None:
        """Where the state is in files, the engine puts each in its place as a whole, but not the note beside it: killed
        while it writes that, it cannot read the file any more. It can do without the note.

        https://github.com/google/go-cloud/blob/master/blob/fileblob/attrs.go
        """
        backend = urlsplit(str(json.loads(self._run("whoami", "--json", stack=False))["url"]))
        if backend.scheme == "file":
            for note in (Path(unquote(backend.path)).expanduser() / ".pulumi").rglob("*.attrs"):
                if not note.stat().st_size:
                    note.unlink()

    def plan(self) -> dict[str, Any]:
        """Raises Locked."""
        plan: dict[str, Any] = json.loads(self._run("preview", "--json", *self._config()))
        return plan

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Raises Locked."""
        self._run("stack", "import", "--force", given=json.dumps(state))  # --force: with operations under way

    def refresh(self) -> None:
        """Raises Locked."""
        self._run("refresh", "--yes", "--skip-preview", *self._config())

    def _config(self) -> list[str]:
        return ["--config-file", str(self.config_file)] if self.config_file else []

    def _run(self, *arguments: str, given: str = "", stack: bool = True) -> str:
        pulumi = shutil.which("pulumi")
        if pulumi is None:
            raise NoEngine(
                "pulumi is not on PATH, and the state is read by it. For a stack on the local cloud: "
                f"python -m localcloud run -- python -m recovery --stack {self.name}"
            )
        command = [pulumi, "--non-interactive", *arguments, *(["--stack", self.name] if stack else [])]
        done = subprocess.run(command, cwd=self.directory, input=given, capture_output=True, text=True)
        if done.returncode:
            printed = (done.stdout + done.stderr).strip()
            raise (Locked if any(sign in printed for sign in SIGNS_OF_ANOTHER) else EngineFailed)(printed)
        return done.stdout
