# SPDX-License-Identifier: Apache-2.0
"""Which tools are taken: the user's own where they fit, what set-up built otherwise."""

from pathlib import Path

import pytest

from localcloud.toolchain import NotSetUp, programs, resolve
from localcloud.toolchain.pins import provider_version
from localcloud.toolchain.tools import HOME_MARKER


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which set-up has run, and the user has nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    for program in (programs.pulumi(), programs.kubernetes_provider(), programs.control_plane()):
        _executable(program.path, "echo v3.274.1")
    return tmp_path


def _executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _plugin(home: Path, name: str, version: str) -> Path:
    return _executable(home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}", "true")


def test_without_anything_of_the_users_what_set_up_built_is_taken() -> None:
    tools = resolve()
    assert tools.pulumi == programs.pulumi().path
    assert tools.language_scripts == programs.pulumi().folder
    assert tools.kubernetes_provider == programs.kubernetes_provider().path
    assert tools.control_plane == programs.control_plane().path
    assert tools.random_provider is None


def test_before_set_up_the_error_names_what_is_missing_and_how_to_get_it(machine: Path) -> None:
    programs.control_plane().path.unlink()
    with pytest.raises(NotSetUp, match=r"missing: Kubernetes control plane 1\.\d+\.\d+\. Run `make setup`"):
        resolve()


def test_the_users_engine_is_taken_with_its_language_host(machine: Path) -> None:
    mine = _executable(machine / "bin" / "pulumi", "echo v3.240.0")
    _executable(machine / "bin" / "pulumi-language-python", "true")
    programs.pulumi().path.unlink()
    tools = resolve()
    assert tools.pulumi == mine
    assert tools.language_scripts is None, "the official language host is beside it"


def test_the_users_engine_without_a_language_host_gets_ours(machine: Path) -> None:
    mine = _executable(machine / "bin" / "pulumi", "echo v3.240.0-dev.1")
    tools = resolve()
    assert tools.pulumi == mine
    assert tools.language_scripts == programs.pulumi().folder


def test_a_language_host_is_looked_for_beside_the_engine_that_a_link_points_to(machine: Path) -> None:
    real = _executable(machine / "opt" / "pulumi", "echo v3.300.1")
    _executable(machine / "opt" / "pulumi-language-python", "true")
    (machine / "bin").mkdir()
    (machine / "bin" / "pulumi").symlink_to(real)
    assert resolve().language_scripts is None


@pytest.mark.parametrize("printed", ["v3.199.0", "v2.25.2", "no version"])
def test_an_engine_that_is_too_old_is_not_taken(machine: Path, printed: str) -> None:
    _executable(machine / "bin" / "pulumi", f"echo {printed}")
    assert resolve().pulumi == programs.pulumi().path


def test_our_own_engine_on_path_is_not_taken_for_the_users(machine: Path) -> None:
    (machine / "bin").mkdir()
    (machine / "bin" / "pulumi").symlink_to(programs.pulumi().path)
    assert resolve().pulumi == programs.pulumi().path


def test_plugins_of_exactly_the_pinned_version_are_taken(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = machine / "home" / ".pulumi"
    kubernetes = _plugin(home, "kubernetes", provider_version("kubernetes"))
    _plugin(home, "docker-build", "0.0.1")
    other_home = machine / "other"
    random = _plugin(other_home, "random", provider_version("random"))
    monkeypatch.setenv("PULUMI_HOME", str(other_home))
    programs.kubernetes_provider().path.unlink()
    tools = resolve()
    assert tools.kubernetes_provider == kubernetes
    assert tools.random_provider == random
    assert tools.docker_build_provider is None, "another version is another plugin"


def test_launchers_in_a_home_of_ours_are_not_taken_for_the_users_plugins(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = machine / "state" / "pulumi-home"
    _plugin(home, "random", provider_version("random"))
    (home / HOME_MARKER).touch()
    monkeypatch.setenv("PULUMI_HOME", str(home))
    assert resolve().random_provider is None
