# SPDX-License-Identifier: Apache-2.0
"""A second clone on a machine where set-up has run: ready at once, with an environment of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.toolchain.pins import CHECKOUT

pytestmark = pytest.mark.engine  # which means that set-up has run here


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git would have, in another folder."""
    folder = tmp_path_factory.mktemp("clone") / "gpuheap"
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    names = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    return folder


def _run(clone: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_set_up_makes_the_environment_and_builds_nothing(clone: Path) -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    first = _run(clone, python, "-m", "localcloud.toolchain")
    assert [line for line in first.splitlines() if line.startswith("✓")] == [
        line for line in first.splitlines() if line.startswith("✓ .venv")
    ]
    assert (clone / "agent" / "gpuheap" / "profile" / "assets" / "d3.min.js").exists()
    second = _run(clone, python, "-m", "localcloud.toolchain")
    assert "✓" not in second, "what is there costs no time"


def test_its_python_imports_its_own_files_and_the_shared_packages(clone: Path) -> None:
    code = "import gpuheap, localcloud, pulumi; print(gpuheap.__file__, localcloud.__file__, pulumi.__file__)"
    ours, also_ours, shared = _run(clone, ".venv/bin/python", "-P", "-c", code).split()
    assert Path(ours).is_relative_to(clone)
    assert Path(also_ours).is_relative_to(clone)
    assert not Path(shared).is_relative_to(clone)


def test_its_commands_run_from_anywhere(clone: Path, tmp_path: Path) -> None:
    link = tmp_path / "gpuheap"
    link.symlink_to(clone / ".venv" / "bin" / "gpuheap")
    assert "record" in _run(clone, str(link), "--help")
    assert _run(clone, ".venv/bin/ruff", "--version").startswith("ruff ")
    assert "file or directory" not in _run(clone, ".venv/bin/python", "-m", "pip", "--version")


def test_an_environment_that_something_else_made_is_left_alone(clone: Path) -> None:
    (clone / ".venv" / "gpuheap-environment").unlink()
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [python, "-m", "localcloud.toolchain"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "was made by something else: move it away" in done.stderr
