# SPDX-License-Identifier: Apache-2.0
"""The recovery where it cannot run."""

import pytest
import typer
from typer.testing import CliRunner

from recovery.__main__ import recover


def test_where_there_is_no_engine_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    app.command()(recover)
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(app, ["--stack", "dev"])
    assert done.exit_code == 1
    assert "pulumi is not on PATH" in done.output
    assert "python -m localcloud run" in done.output
