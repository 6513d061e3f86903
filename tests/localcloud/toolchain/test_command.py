# SPDX-License-Identifier: Apache-2.0
"""Commands of set-up: their output is kept, and a failure shows the end of it."""

from pathlib import Path

import pytest

from localcloud.toolchain import SetupFailed, command


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpuheap"


def test_lines_of_both_streams_are_seen_at_once_and_returned(own_cache: Path) -> None:
    seen: list[str] = []
    script = "echo one; echo two >&2; echo $X"
    lines = command.run(
        ["sh", "-c", script], log="step", hint="", environment={"X": "three"}, on_line=seen.append
    )
    assert lines == seen == ["one", "two", "three"]
    assert "one\ntwo\nthree\n" in (own_cache / "logs" / "step.log").read_text()


def test_a_failure_shows_the_last_lines_the_log_file_and_what_to_try(own_cache: Path) -> None:
    script = "for i in $(seq 40); do echo line $i; done; exit 7"
    with pytest.raises(SetupFailed) as failed:
        command.run(["sh", "-c", script], log="step", hint="check the network")
    text = str(failed.value)
    assert "ended with 7" in text
    assert "line 40" in text
    assert "line 20\n" not in text
    assert str(own_cache / "logs" / "step.log") in text
    assert "check the network" in text


def test_a_command_that_does_not_exist_is_said_to(own_cache: Path) -> None:
    with pytest.raises(SetupFailed, match="cannot run no-such-command: No such file") as failed:
        command.run(["no-such-command"], log="step", hint="install it")
    assert "install it" in str(failed.value)
