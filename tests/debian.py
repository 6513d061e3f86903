# SPDX-License-Identifier: Apache-2.0
"""Packages of Debian's archive, from the mirror that this machine's apt uses, without installing anything.

apt does the fetching and checks the signatures, with lists of its own: the machine's are left alone.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FETCH_SECONDS: Final = 300


class NotObtainable(Exception):
    """Something is not here and cannot be fetched; the text says why."""


def sites() -> dict[str, str]:
    """Where this machine's apt finds Debian's `main` and `security` archives: those of its own release."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return {}
    if system.get("ID") != "debian" or shutil.which("apt-get") is None or not KEYRING.exists():
        return {}
    own = system.get("VERSION_CODENAME", "")
    form = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    try:
        listed = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    except NotObtainable:
        return {}
    found: dict[str, str] = {}
    for line in listed.splitlines():
        suite, component, site = line.split(maxsplit=2)
        if component == "main" and suite in (own, f"{own}-security"):
            found.setdefault("main" if suite == own else "security", site)
    return found


class Archive:
    """One suite of one site, with lists in a folder of its own. Everything raises NotObtainable."""

    def __init__(self, work: Path, site: str, suite: str, *, sources: bool = False) -> None:
        kind = "deb-src" if sources else "deb [arch=amd64"
        options = f" [signed-by={KEYRING}]" if sources else f" signed-by={KEYRING}]"
        self.work = work
        self._arguments = _private_apt(work, f"{kind}{options} {site} {suite} main\n")
        run(["apt-get", *self._arguments, "update"])

    def depends(self, package: str) -> str:
        """What apt-cache says of a package's dependencies."""
        return run(["apt-cache", *self._arguments, "depends", "--important", package])

    def download(self, *packages: str) -> None:
        """Package files, into `work`."""
        run(["apt-get", *self._arguments, "download", *packages], folder=self.work)

    def source(self, package: str) -> None:
        """The files of a source package, into `work`."""
        run(["apt-get", *self._arguments, "source", "--download-only", package], folder=self.work)

    def unpack(self, into: Path) -> None:
        """All that was downloaded."""
        for package in sorted(self.work.glob("*.deb")):
            run(["dpkg-deb", "-x", str(package), str(into)])


def _private_apt(work: Path, source: str) -> list[str]:
    """Arguments with which apt keeps to `work` and knows one source; the machine's hooks do not run."""
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text(source)
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": work / "parts",
        "Dir::State": work,
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "APT::Sandbox::User": "root",  # the cache may lie where apt's own user cannot write
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    lines = [
        "#clear APT::Update;",
        "#clear DPkg;",
        *(f'{name} "{value}";' for name, value in settings.items()),
    ]
    (work / "apt.conf").write_text("\n".join(lines) + "\n")
    return ["-q", "-c", str(work / "apt.conf")]


def run(command: Sequence[str], folder: Path | None = None, seconds: float = FETCH_SECONDS) -> str:
    """What the command prints. Raises NotObtainable with the last lines of its errors."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotObtainable(f"{command[0]} {command[-1]}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise NotObtainable(f"{command[0]} {command[-1]}: {' / '.join(last)}")
    return done.stdout
