# SPDX-License-Identifier: Apache-2.0
"""Programs that a Python runs which has imported its modules beforehand."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.plugin.language.prepared import Program, RunningProgram, prepared_python
from tests.waiting import DEADLINE_SECONDS

SHOWS_ITSELF = """
import os, sys

before = "colorsys" in sys.modules
import neighbour

with open("shown", "w") as shown:
    print(__name__, sys.argv, os.getcwd(), sys.path[0], dict(os.environ), before, neighbour.WORD, file=shown)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    address = tmp_path_factory.mktemp("prepared") / "python"
    with prepared_python(address, modules=["colorsys"]):
        yield address


def started(python: Path, folder: Path, text: str, *arguments: str) -> RunningProgram:
    script = folder / "program.py"
    script.write_text(text)
    program = Program(script=str(script), arguments=arguments, environment={"WORD": "x"}, folder=str(folder))
    return RunningProgram(str(python), program)


def test_a_program_runs_as_in_a_process_of_its_own(python: Path, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'found'")
    assert started(python, tmp_path, SHOWS_ITSELF, "one", "two").wait(DEADLINE_SECONDS) == 7
    shown = (tmp_path / "shown").read_text()
    command = [sys.executable, str(tmp_path / "program.py"), "one", "two"]
    subprocess.run(command, cwd=tmp_path, env={"WORD": "x"}, check=False)
    # LC_CTYPE: what Python itself sets where the environment names no language (PEP 538).
    expected = (tmp_path / "shown").read_text().replace(", 'LC_CTYPE': 'C.UTF-8'", "")
    assert shown == expected.replace(" False found", " True found"), "only the import was made before"


def test_modules_that_are_empty_until_they_are_used_are_imported_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sdk").mkdir()
    (tmp_path / "sdk" / "__init__.py").write_text(
        "from pulumi._utils import lazy_import\nlazy_import('sdk.network')\n"
    )
    (tmp_path / "sdk" / "network.py").write_text("import wave\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with prepared_python(tmp_path / "python", modules=["sdk.network"]):
        text = "import sys; sys.exit(7 if 'wave' in sys.modules else 0)"
        assert started(tmp_path / "python", tmp_path, text).wait(DEADLINE_SECONDS) == 7


def test_what_a_program_imports_is_not_there_for_the_next(python: Path, tmp_path: Path) -> None:
    for _ in range(2):
        text = "import sys; known = 'wave' in sys.modules; import wave; sys.exit(known)"
        assert started(python, tmp_path, text).wait(DEADLINE_SECONDS) == 0


def test_a_program_can_be_ended_and_says_by_what(python: Path, tmp_path: Path) -> None:
    program = started(python, tmp_path, "import threading; threading.Event().wait()")
    assert program.poll() is None
    os.killpg(program.pid, signal.SIGTERM)
    assert program.wait(DEADLINE_SECONDS) == -signal.SIGTERM
    assert program.poll() == -signal.SIGTERM


def test_an_exception_is_an_exit_code(python: Path, tmp_path: Path) -> None:
    assert started(python, tmp_path, "1 / 0").wait(DEADLINE_SECONDS) == 1


def test_without_a_prepared_python_there_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        RunningProgram(str(tmp_path / "none"), Program(script="x", arguments=[], environment={}, folder="."))
