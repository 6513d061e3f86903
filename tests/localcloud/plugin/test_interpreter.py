# SPDX-License-Identifier: Apache-2.0
"""Which Python runs a program, by the options of its project."""

import os
import platform
import sys
from pathlib import Path

import pytest

from localcloud.plugin.language.interpreter import (
    CannotRun,
    RequiredPlugin,
    installed,
    interpreter_of,
    required_plugins,
)


def test_a_relative_virtual_environment_lies_in_the_projects_folder(tmp_path: Path) -> None:
    interpreter = interpreter_of(tmp_path, {"virtualenv": "env/../.venv"})
    assert interpreter.python == str(tmp_path / ".venv" / "bin" / "python")
    assert not interpreter.exists


def test_an_absolute_virtual_environment_stays_where_it_is(tmp_path: Path) -> None:
    assert interpreter_of(tmp_path, {"virtualenv": "/opt/env"}).python == "/opt/env/bin/python"


def test_the_environment_is_activated_before_the_path_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/somewhere")
    environment = interpreter_of(tmp_path, {"virtualenv": ".venv"}).environment({"PATH": "/engine", "X": "1"})
    assert environment["PATH"] == f"{tmp_path}/.venv/bin{os.pathsep}/engine"
    assert environment["VIRTUAL_ENV"] == f"{tmp_path}/.venv"
    assert environment["X"] == "1"
    assert "PYTHONHOME" not in environment


def test_without_a_virtual_environment_the_users_choice_runs_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_PYTHON_CMD", "python3.99")
    assert interpreter_of(tmp_path, {}).python == "python3.99"
    monkeypatch.delenv("PULUMI_PYTHON_CMD")
    assert interpreter_of(tmp_path, {}).python == sys.executable


def test_uv_keeps_its_environment_in_the_project(tmp_path: Path) -> None:
    assert interpreter_of(tmp_path, {"toolchain": "uv"}).virtualenv == tmp_path / ".venv"


@pytest.mark.parametrize("options", [{"toolchain": "poetry"}, {"typechecker": "mypy"}])
def test_an_option_that_would_be_ignored_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(CannotRun, match="install the official Pulumi CLI"):
        interpreter_of(tmp_path, options)


def test_the_interpreter_itself_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_PYTHON_CMD", sys.executable)
    interpreter = interpreter_of(tmp_path, {})
    assert interpreter.version() == platform.python_version()
    assert any(Path(path).name == "site-packages" for path in interpreter.search_path())


def test_a_python_that_does_not_start_is_an_error_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken install >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PULUMI_PYTHON_CMD", str(broken))
    with pytest.raises(CannotRun, match="broken install"):
        interpreter_of(tmp_path, {}).version()


def test_plugins_are_what_the_installed_packages_declare(tmp_path: Path) -> None:
    for folder, name, version in (("one", "random", "1.0.0"), ("other", "random", "2.0.0")):
        package = tmp_path / folder / "pulumi_random"
        package.mkdir(parents=True)
        text = (
            f'{{"resource": true, "name": "{name}", "version": "{version}", "server": "https://example.org"}}'
        )
        (package / "pulumi-plugin.json").write_text(text)
    library = tmp_path / "one" / "pulumi_library"
    library.mkdir()
    (library / "pulumi-plugin.json").write_text('{"resource": false, "name": "library"}')
    found = required_plugins([str(tmp_path / "one"), str(tmp_path / "other")])
    assert found == [RequiredPlugin(name="random", version="1.0.0", server="https://example.org")], (
        "the first installation on the path is the one that is imported"
    )


def test_direct_dependencies_are_those_that_nothing_else_asks_for(tmp_path: Path) -> None:
    for name, requires in (
        ("My_Package", ["other.package>=1", "optional; extra == 'more'"]),
        ("other-package", []),
        ("optional", []),
    ):
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {each}" for each in requires)]
        (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    assert installed([str(tmp_path)], transitive=False) == {"my-package": "1.0", "optional": "1.0"}
    assert set(installed([str(tmp_path)], transitive=True)) == {"my-package", "other-package", "optional"}
