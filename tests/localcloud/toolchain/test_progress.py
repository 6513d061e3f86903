# SPDX-License-Identifier: Apache-2.0
"""What a step prints, in a log and on a terminal."""

import io
import re

import pytest

from localcloud.toolchain import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_log_a_step_has_a_line_when_it_starts_and_one_with_its_seconds() -> None:
    out = io.StringIO()
    with progress.step("Engine", out) as running:
        running.says("1 of 2")
    assert re.fullmatch(r"… Engine\n✓ Engine, \d+\.\d s\n", out.getvalue()), (
        "what comes within a minute of the last line is left out"
    )


def test_a_long_step_gives_a_sign_of_life_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    out = io.StringIO()
    with progress.step("Engine", out) as running:
        running.says("1 of 2")
    assert re.search(r"^… Engine: 1 of 2, \d+ s$", out.getvalue(), re.MULTILINE)


def test_on_a_terminal_the_line_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LIVE_SECONDS", 0.0)
    out = Terminal()
    with progress.step("Engine", out) as running:
        running.says("1 of 2")
        running.says("2 of 2")
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().count("\r\x1b[K") == 4


def test_a_failed_step_is_marked() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="broken"), progress.step("Engine", out):
        raise ValueError("broken")
    assert "✗ Engine" in out.getvalue()
