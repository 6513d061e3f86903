# SPDX-License-Identifier: Apache-2.0
"""The Python environment: dependencies once per user, and a thin `.venv` in each checkout on top of them."""

import shutil
import sys
import tomllib
from functools import partial
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any, Final

from localcloud.toolchain import command
from localcloud.toolchain.cache import cache_folder, content_hash, provide
from localcloud.toolchain.errors import SetupFailed
from localcloud.toolchain.pins import CHECKOUT, MODULES, REQUIREMENTS
from localcloud.toolchain.progress import Step, step

AGENT: Final = CHECKOUT / "agent"
DEVELOPMENT: Final = CHECKOUT / "requirements-dev.txt"
CONSTRAINTS: Final = MODULES / "constraints.txt"
LAYOUT: Final = "1"
"""Raised when what is put into either environment changes."""

BASE_PYTHON: Final[str] = getattr(sys, "_base_executable", sys.executable)
"""Not the one of an activated `.venv`, which may be about to be made anew."""

STAMP: Final = "gpuheap-environment"
PYTHON_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
HINT: Final = (
    "packages come from the index that `pip config list` shows: check the network, then run it again"
)

SCRIPT: Final = """#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" -c \\
    'import sys; sys.argv[0] = "{name}"; from {module} import {function}; sys.exit({call}())' "$@"
"""


def dependencies() -> Path:
    """The environment in the cache that holds all dependencies, installed if it is not there."""
    folder = cache_folder() / f"venv-{PYTHON_VERSION}-{_key()}"
    if not folder.exists():
        with step(f"Python packages for {PYTHON_VERSION}") as running:
            provide(folder, partial(_install, running))
    return folder


def checkout_environment(installed: Path) -> None:
    """`.venv` of this checkout: `installed`, the checkout and `agent/` on the path, and the commands of all of them."""
    folder = CHECKOUT / ".venv"
    stamp = folder / STAMP
    wanted = f"{LAYOUT} {installed} {CHECKOUT} {sys.version} {_agent_commands()}"
    if stamp.exists() and stamp.read_text() == wanted and (folder / "bin" / "python").exists():
        return
    if folder.exists() and not stamp.exists():
        raise SetupFailed(f"{folder} was made by something else: move it away, then run it again")
    with step(".venv"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        stamp.write_text(
            "unfinished"
        )  # tells the next set-up that the folder is ours, should this one be stopped
        command.run([BASE_PYTHON, "-m", "venv", "--without-pip", str(folder)], log="venv", hint=HINT)
        lines = [
            f"import site; site.addsitedir({str(_site_packages(installed))!r})",
            str(CHECKOUT),
            str(AGENT),
        ]
        (_site_packages(folder) / "gpuheap-checkout.pth").write_text("\n".join(lines) + "\n")
        (folder / "dependencies").symlink_to(
            installed
        )  # for the type checker, which wants them without the checkout
        _add_commands(folder / "bin", installed)
        stamp.write_text(wanted)


def _key() -> str:
    """Changes with what is to be installed, by which Python; not with a comment."""
    lines = [
        line for file in (REQUIREMENTS, DEVELOPMENT, CONSTRAINTS) for line in file.read_text().splitlines()
    ]
    wanted = [line for line in lines if line and not line.startswith("#")] + _agent_dependencies()
    return content_hash([], LAYOUT, sys.version, sys.base_prefix, *wanted)


def _install(running: Step, folder: Path) -> None:
    log = "python-packages"
    command.run(
        [BASE_PYTHON, "-m", "venv", str(folder)], log=log, hint="Debian: apt-get install python3-venv"
    )
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--progress-bar=off",
    ]
    wanted = ["-r", str(REQUIREMENTS), "-r", str(DEVELOPMENT), "-c", str(CONSTRAINTS), *_agent_dependencies()]
    command.run([*pip, *wanted], log=log, hint=HINT, on_line=lambda line: running.says(line.strip()[:80]))


def _agent_dependencies() -> list[str]:
    dependencies: list[str] = _agent_project()["dependencies"]
    return dependencies


def _agent_commands() -> list[EntryPoint]:
    scripts: dict[str, str] = _agent_project().get("scripts", {})
    return [EntryPoint(name, value, "console_scripts") for name, value in scripts.items()]


def _agent_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((AGENT / "pyproject.toml").read_text())["project"]
    return project


def _site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{PYTHON_VERSION}" / "site-packages"


def _add_commands(bin_folder: Path, installed: Path) -> None:
    """The commands of the installed packages, run by the checkout's Python, and our own from agent/pyproject.toml."""
    for script in (installed / "bin").iterdir():
        if script.is_file() and script.read_bytes()[:4] == b"\x7fELF" and not script.is_symlink():
            (bin_folder / script.name).symlink_to(script)
    entries = [
        entry for each in distributions(path=[str(_site_packages(installed))]) for entry in each.entry_points
    ]
    for entry in [*entries, *_agent_commands()]:
        if entry.group == "console_scripts" and not (bin_folder / entry.name).exists():
            function = entry.attr.split(".")[0]
            text = SCRIPT.format(name=entry.name, module=entry.module, function=function, call=entry.attr)
            (bin_folder / entry.name).write_text(text)
            (bin_folder / entry.name).chmod(0o755)
