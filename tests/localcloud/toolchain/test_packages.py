# SPDX-License-Identifier: Apache-2.0
"""Distribution packages: found by what they provide, reported with what is skipped without them."""

import os
import shutil

import pytest

from localcloud.toolchain import command, packages
from localcloud.toolchain.packages import Package


def test_every_line_of_the_list_is_understood() -> None:
    listed = packages.listed(packages.LIST.read_text())
    assert {"clang", "gcc", "libbpf-dev", "libbpf1"} <= {package.name for package in listed}
    for package in listed:
        assert package.provides.partition(":")[0] in packages.PROBES
        assert package.without


def _package(provides: str) -> Package:
    return Package(name="some-package", provides=provides, without="something is skipped")


@pytest.mark.parametrize("provides", ["command:sh", "module:venv", "library:libc.so.6"])
def test_what_is_there_counts_wherever_it_came_from(provides: str) -> None:
    assert _package(provides).present


@pytest.mark.parametrize(
    "provides",
    [
        "command:no-such-command",
        "module:no_such_module",
        "library:libno-such.so.1",
        "header:no/such.h",
    ],
)
def test_what_is_not_there_is_missing(provides: str) -> None:
    assert not _package(provides).present


def test_the_report_names_the_package_and_what_is_skipped() -> None:
    (line,) = packages.report([_package("command:no-such-command")])
    assert line == "not installed: some-package (command:no-such-command); something is skipped"


def test_without_root_nothing_is_installed_and_the_missing_are_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = _package("command:no-such-command")
    monkeypatch.setattr(packages, "listed", lambda text: [missing, _package("command:sh")])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("apt-get was called"))
    assert packages.provide() == [missing]


def test_root_installs_exactly_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(
        packages, "listed", lambda text: [_package("command:no-such"), _package("command:sh")]
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "no-such" else f"/bin/{name}")
    monkeypatch.setattr(command, "run", lambda arguments, **_: commands.append(arguments))
    packages.provide()
    assert [arguments[3] for arguments in commands] == ["update", "install"]
    assert commands[1][4:] == ["--no-install-recommends", "some-package"]
