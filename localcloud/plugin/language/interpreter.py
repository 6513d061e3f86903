# SPDX-License-Identifier: Apache-2.0
"""Which Python runs a program, and what is installed for it, by the `runtime.options` of its project file."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

KNOWN_OPTIONS: Final = frozenset({"toolchain", "virtualenv"})
KNOWN_TOOLCHAINS: Final = frozenset({"", "pip", "uv"})


class CannotRun(Exception):
    """There is no Python for the program; the text says what is missing and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The Python of one program. `virtualenv` is None where the project names none."""

    python: str
    virtualenv: Path | None

    @property
    def exists(self) -> bool:
        return self.virtualenv is None or Path(self.python).exists()

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """What the program's process gets: this host's environment, `extra`, and an activated virtual environment."""
        environment = {**os.environ, **extra}
        if self.virtualenv:
            environment["VIRTUAL_ENV"] = str(self.virtualenv)
            # After `extra`: for a plugin it holds the engine's PATH, where the virtual environment is not the first.
            environment["PATH"] = (
                f"{self.virtualenv / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
            )
            environment.pop("PYTHONHOME", None)
        return environment

    def version(self) -> str:
        return self._ask("import platform; print(platform.python_version())").strip()

    def search_path(self) -> list[str]:
        """The interpreter's `sys.path`: a `.pth` file can add folders that only the interpreter itself knows."""
        path: list[str] = json.loads(self._ask("import json, sys; print(json.dumps(sys.path[1:]))"))
        return path

    def _ask(self, code: str) -> str:
        command = [self.python, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment({}))
        if done.returncode:
            raise CannotRun(f"{self.python} does not work:\n{done.stderr.strip()}")
        return done.stdout


def interpreter_of(root: Path, options: Mapping[str, Any]) -> Interpreter:
    """The interpreter that `options` name; a relative virtual environment lies in `root`, the project's folder."""
    unknown = sorted(set(options) - KNOWN_OPTIONS)
    toolchain = options.get("toolchain", "")
    if unknown or toolchain not in KNOWN_TOOLCHAINS:
        given = ", ".join(unknown) if unknown else f"toolchain: {toolchain}"
        raise CannotRun(
            f"runtime option not known to this language host: {given} (it knows `virtualenv`, and `toolchain`"
            " pip and uv); install the official Pulumi CLI for the others"
        )
    folder = options.get("virtualenv") or (".venv" if toolchain == "uv" else None)
    if folder is None:
        return Interpreter(python=os.environ.get("PULUMI_PYTHON_CMD") or sys.executable, virtualenv=None)
    virtualenv = Path(os.path.normpath(root / folder))
    return Interpreter(python=str(virtualenv / "bin" / "python"), virtualenv=virtualenv)


class RequiredPlugin(NamedTuple):
    """A resource plugin that an installed package asks the engine for."""

    name: str
    version: str
    server: str


def required_plugins(search_path: Iterable[str]) -> list[RequiredPlugin]:
    """The plugins of all installed packages; of two installations the first on the path, which is the one imported."""
    found: dict[str, RequiredPlugin] = {}
    for folder in search_path:
        for file in sorted(Path(folder).glob("*/pulumi-plugin.json")):
            plugin = json.loads(file.read_text())
            name = plugin.get("name")
            if plugin.get("resource") and name and name not in found:
                version, server = plugin.get("version") or "", plugin.get("server") or ""
                found[name] = RequiredPlugin(name=name, version=version, server=server)
    return list(found.values())


def installed(search_path: Iterable[str], *, transitive: bool) -> dict[str, str]:
    """Versions by normalised name; without `transitive` only of what nothing else installed asks for."""
    found: list[Distribution] = list(distributions(path=list(search_path)))
    required = {_normal(line) for each in found for line in each.requires or () if "extra ==" not in line}
    return {
        name: each.version
        for each in reversed(found)
        if (name := _normal(each.name)) and (transitive or name not in required)
    }


def _normal(requirement: str) -> str:
    """The name that a requirement starts with, as PEP 503 compares names."""
    match = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
