# SPDX-License-Identifier: Apache-2.0
"""The packages of a node: fetched by apt, unpacked into the cache and nowhere else."""

import os
import subprocess
from pathlib import Path

import pytest

from localcloud.toolchain import node_packages

APT = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case " $* " in *" update "*) touch "$(dirname "$0")/updated"; exit 0;; esac
[ -e "$(dirname "$0")/updated" ] || { echo "E: Unable to locate package containerd"; exit 100; }
cp "$(dirname "$0")/containerd.deb" .
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of a machine that has no lists of packages yet."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apt-get").write_text(APT)
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return programs


def package(machine: Path) -> None:
    """A package with one program in it."""
    tree = machine.parent / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: containerd\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n"
    )
    (tree / "usr" / "sbin").mkdir(parents=True)
    (tree / "usr" / "sbin" / "xtables-nft-multi").write_text("program")
    subprocess.run(["dpkg-deb", "--build", str(tree), str(machine / "containerd.deb")], check=True)


needs_dpkg = pytest.mark.skipif(not Path("/usr/bin/dpkg-deb").exists(), reason="needs dpkg-deb")


@needs_dpkg
def test_they_are_fetched_after_the_lists_and_unpacked_with_the_links_of_their_scripts(machine: Path) -> None:
    package(machine)
    assert node_packages.provide() is None
    folder = node_packages.folder()
    assert (folder / "usr" / "sbin" / "iptables-save").read_text() == "program"
    assert sorted(each.name for each in folder.iterdir()) == ["usr"], "the fetched files are gone"
    calls = [line.split()[1] for line in (machine / "calls").read_text().splitlines()]
    assert calls == ["download", "update", "download"]


@needs_dpkg
def test_what_is_there_is_not_fetched_again(machine: Path) -> None:
    node_packages.folder().mkdir(parents=True)
    assert node_packages.provide() is None
    assert not (machine / "calls").exists()


@needs_dpkg
def test_what_apt_cannot_fetch_is_reported_and_set_up_goes_on(machine: Path) -> None:
    reason = node_packages.provide()  # there is no package to copy
    assert reason
    assert "apt-get" in reason
    assert not node_packages.folder().exists()


def test_without_root_there_is_no_node(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    reason = node_packages.provide()
    assert reason
    assert "root" in reason or "dpkg-deb" in reason
    assert not (machine / "calls").exists()
