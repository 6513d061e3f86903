# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuheap.node.child import Child, Others
from gpuheap.node.errors import RecordError
from tests.waiting import wait_for


def test_a_command_does_nothing_before_it_is_started(tmp_path: Path) -> None:
    child = Child.prepare(["touch", str(tmp_path / "mark")])
    assert not child.ended()
    assert not (tmp_path / "mark").exists()
    child.start()
    child.wait()
    assert (child.exit_code, (tmp_path / "mark").exists()) == (0, True)


def test_a_command_that_is_never_started_never_runs(tmp_path: Path) -> None:
    child = Child.prepare(["touch", str(tmp_path / "mark")])
    child.abandon()
    assert child.ended()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_exit_code_is_what_a_shell_reports(script: str, code: int) -> None:
    child = Child.prepare(["sh", "-c", script])
    child.start()
    child.wait()
    assert child.exit_code == code


def test_a_command_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RecordError, match="no-such-command: no such command"):
        Child.prepare(["no-such-command"])


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("no program")
    file.chmod(0o755)
    child = Child.prepare([str(file)])
    with pytest.raises(RecordError, match="cannot be run: Exec format error"):
        child.start()


def test_a_signal_reaches_the_command() -> None:
    child = Child.prepare([sys.executable, "-c", "import time; time.sleep(60)"])
    child.start()
    child.signal(signal.SIGTERM)
    child.wait()
    assert child.exit_code == 128 + signal.SIGTERM
    child.signal(signal.SIGTERM)  # its pid may be another process's by now: nothing is sent


def test_processes_that_run_already_are_watched_until_all_have_ended() -> None:
    running = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    others = Others([process.pid for process in running])
    try:
        assert not others.ended()
        running[0].kill()
        running[0].wait()
        assert not others.ended()
        running[1].kill()
        wait_for("the end of both", others.ended)
        running[1].wait()
    finally:
        others.close()


def test_a_process_that_does_not_exist_is_refused_and_nothing_stays_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(RecordError, match="No such process"):
        Others([os.getpid(), 4_000_000])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
