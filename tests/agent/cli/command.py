# SPDX-License-Identifier: Apache-2.0
"""Runs the command `gpuheap` of this checkout in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import gpuheap as package
from tests.waiting import DEADLINE_SECONDS


def start(
    *arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """In a session of its own, so that a test can send signals to its process group as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "gpuheap", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def gpuheap(
    *arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    with start(*arguments, folder=folder, environment=environment) as process:
        output, errors = process.communicate(timeout=DEADLINE_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
