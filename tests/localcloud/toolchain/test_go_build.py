# SPDX-License-Identifier: Apache-2.0
"""Building a pinned program: with a small one, the real compiler and an empty compiler's cache."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from localcloud.toolchain import SetupFailed, go_build, programs
from localcloud.toolchain.cache import cache_folder

# Without fmt, which would be most of what is compiled.
MAIN = """package main

import _ "embed"

//go:embed text
var text string

var version = "none"

func main() { print(version, " ", text) }
"""


def _write_text(folder: Path, module_folder: programs.ModuleFolder) -> None:
    (folder / "text").write_text(f"embedded in {module_folder('example.org/small').name}")


def _write_beside(folder: Path, module_folder: programs.ModuleFolder) -> None:
    (folder / "beside").touch()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> programs.Program:
    """A program without dependencies: nothing is downloaded."""
    if shutil.which("go") is None:
        pytest.skip("needs Go on PATH")
    # Where Go keeps what it does not rebuild, for the others.
    compiled = subprocess.run(
        ["go", "env", "GOCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    monkeypatch.setenv("GOCACHE", compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(programs, "MODULES", tmp_path)
    cache_folder().mkdir(parents=True)
    module = tmp_path / "small"
    module.mkdir()
    (module / "go.mod").write_text("module example.org/small\n\ngo 1.21\n")
    (module / "main.go").write_text(MAIN)
    return programs.Program(
        title="Small 1.0",
        module="small",
        package=".",
        executable="small",
        version="1.0",
        variables=(("main.version", "1.0"),),
        before=_write_text,
        after=_write_beside,
    )


def _entries() -> set[str]:
    return {path.name for path in cache_folder().iterdir()} - {"logs"}


def test_a_program_is_built_with_its_version_and_its_files(
    small: programs.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    go_build.build([small])
    printed = subprocess.run([small.path], capture_output=True, text=True, check=True).stderr
    assert printed == "1.0 embedded in sources"
    assert {path.name for path in small.folder.iterdir()} == {"small", "beside"}
    assert _entries() == {small.folder.name}, "the private compiler's cache does not stay"
    assert "✓ Small 1.0, from source" in capsys.readouterr().out


def test_a_program_that_is_there_is_not_built(
    small: programs.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.path.parent.mkdir()
    small.path.touch()
    monkeypatch.setenv("PATH", "")
    go_build.build([small])
    assert small.path.read_text() == ""


def test_another_way_of_building_is_another_entry(small: programs.Program) -> None:
    assert replace(small, variables=(("main.version", "1.1"),)).folder != small.folder
    before = small.folder
    (small.sources / "main.go").write_text(MAIN.replace("none", "unset"))
    assert small.folder != before


def test_a_failed_build_leaves_no_entry_and_shows_gos_words(small: programs.Program) -> None:
    (small.sources / "main.go").write_text(MAIN.replace("package main", "packet main"))
    with pytest.raises(SetupFailed, match="expected 'package', found packet"):
        go_build.build([small])
    assert not small.folder.exists()
    assert not list(cache_folder().glob(".unfinished*"))


def test_a_machine_without_go_is_told_where_to_get_it(
    small: programs.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupFailed, match=r"Go is not on PATH.*\n.*https://go\.dev/dl"):
        go_build.build([small])


def test_a_go_that_is_too_old_is_told_from_one_that_is_not(
    small: programs.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "go"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho \'{"GOVERSION": "go1.19.8"}\'\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    with pytest.raises(SetupFailed, match=r"Go 1\.21 or newer is needed, go1\.19\.8 is on PATH"):
        go_build.build([small])


def test_a_full_disk_is_told_before_anything_is_built(
    small: programs.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_build, "DISK_BYTES", 10**18)
    with pytest.raises(SetupFailed, match="XDG_CACHE_HOME to another disk"):
        go_build.build([small])


@pytest.mark.parametrize(
    "program", [programs.pulumi(), programs.kubernetes_provider(), programs.control_plane()]
)
def test_the_pinned_programs_name_their_versions(program: programs.Program) -> None:
    assert program.version in program.title
    assert any(program.version in value for _, value in program.variables)
    assert (program.sources / "go.sum").exists()
