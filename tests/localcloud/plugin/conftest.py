# SPDX-License-Identifier: Apache-2.0
"""Small Pulumi projects, run by the real engine with our plugins."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from localcloud.toolchain import pulumi_home, resolve
from tests.waiting import DEADLINE_SECONDS

CHECKOUT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project with a stack `dev`, its own backend and its own Pulumi home."""

    folder: Path
    environment: dict[str, str]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["pulumi", "--non-interactive", "--color=never", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # an interrupt is for the engine alone, as the shell does it
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        with self.start(*arguments) as process:
            printed, _ = process.communicate(timeout=DEADLINE_SECONDS)
            return process.returncode, printed

    def succeed(self, *arguments: str) -> str:
        code, printed = self.run(*arguments)
        assert code == 0, printed
        return printed


MakeProject = Callable[..., Project]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    tools = resolve()
    # As `localcloud.cloud` gives it; a program finds this checkout's packages as in .venv.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "PYTHON"))
    } | {
        "PULUMI_HOME": str(pulumi_home(tmp_path, tools, python=Path(sys.executable))),
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_PYTHON_CMD": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path[1:]),
        "PATH": f"{tools.pulumi.parent}{os.pathsep}{os.environ['PATH']}",
    }

    def make(program: str, *, options: dict[str, str] | None = None, **more_files: str) -> Project:
        folder = tmp_path / "project"
        folder.mkdir()
        runtime = {"name": "python", "options": options or {}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "small", "runtime": runtime}))
        (folder / "__main__.py").write_text(program)
        for name, text in more_files.items():
            (folder / f"{name}.py").write_text(text)
        project = Project(folder=folder, environment=environment)
        project.succeed("stack", "init", "dev")
        return project

    return make
