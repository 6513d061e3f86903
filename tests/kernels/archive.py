# SPDX-License-Identifier: Apache-2.0
"""Kernels of Debian's releases, and the emulator to boot them, from the archive that this machine's apt uses.

Owns what is fetched and where it is kept: one folder a release in the per-user cache, so that a second run fetches
nothing. apt does the fetching and checks the signatures, with lists of its own: the machine's are left alone.
`python -m tests.kernels.archive` fetches everything beforehand.
"""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcloud.toolchain.cache import cache_folder, provide

EMULATOR: Final = "qemu-system-x86_64"
EMULATOR_PACKAGE: Final = "qemu-system-x86"
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"
"""Depends on the release's newest kernel for virtual machines: a third of the size, with BTF and uprobes built in."""

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FETCH_SECONDS: Final = 300


class NotObtainable(Exception):
    """A kernel or the emulator is not here and cannot be fetched; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Debian release, and the series of its kernel."""

    codename: str
    series: str


RELEASES: Final = (
    Release(codename="bullseye", series="5.10"),
    Release(codename="bookworm", series="6.1"),
    Release(codename="trixie", series="6.12"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel image to boot; `release` is what uname says inside."""

    release: str
    image: Path


def kernel(release: Release) -> Kernel:
    """The release's kernel, fetched if it is not in the cache. Raises NotObtainable."""
    folder = _kept(release)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / "lock").open(
            "w"
        ) as file:  # not set-up's: that one may be held for half an hour
            fcntl.flock(file, fcntl.LOCK_EX)
            provide(folder, lambda unfinished: _fetch_kernel(release, unfinished))
    image = next(folder.glob("vmlinuz-*"))
    return Kernel(release=image.name.removeprefix("vmlinuz-"), image=image)


def emulator() -> Path:
    """qemu, installed if it is not there and may be. Raises NotObtainable."""
    if (found := shutil.which(EMULATOR)) is None:
        if os.geteuid() != 0:
            raise NotObtainable(f"{EMULATOR} is missing: install {EMULATOR_PACKAGE}")
        _run(["apt-get", "-q", "update"])
        _run(["apt-get", "-q", "-y", "install", "--no-install-recommends", EMULATOR_PACKAGE])
        found = shutil.which(EMULATOR)
    if found is None:
        raise NotObtainable(f"{EMULATOR_PACKAGE} holds no {EMULATOR}")
    return Path(found)


def lacks() -> str | None:
    """Why kernels cannot be booted on this machine, as far as that is known without fetching anything."""
    if os.uname().machine != "x86_64":
        return f"needs x86-64, this is {os.uname().machine}"
    if shutil.which(EMULATOR) is None and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        return f"needs {EMULATOR} (package {EMULATOR_PACKAGE})"
    if not all(_kept(release).exists() for release in RELEASES) and not _debian_sites():
        return "needs kernels of Debian's releases, and apt has no sources of Debian here"
    return None


def _kept(release: Release) -> Path:
    return cache_folder() / "kernels" / release.codename


def _fetch_kernel(release: Release, into: Path) -> None:
    """The security archive first: it holds the newest kernels, and its list is a twentieth of the main one's."""
    reasons = []
    for suite, site in _suites(release):
        try:
            _fetch_from(site, suite, into)
            return
        except NotObtainable as error:
            reasons.append(f"{suite}: {error}")
    why = "; ".join(reasons) or "apt has no sources of Debian"
    raise NotObtainable(f"no kernel {release.series}: {why}")


def _suites(release: Release) -> list[tuple[str, str]]:
    sites = _debian_sites()
    both = ((f"{release.codename}-security", "security"), (release.codename, "main"))
    return [(suite, sites[kind]) for suite, kind in both if kind in sites]


def _debian_sites() -> dict[str, str]:
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
        listed = _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    except NotObtainable:
        return {}
    sites: dict[str, str] = {}
    for line in listed.splitlines():
        suite, component, site = line.split(maxsplit=2)
        if component == "main" and suite in (own, f"{own}-security"):
            sites.setdefault("main" if suite == own else "security", site)
    return sites


def _fetch_from(site: str, suite: str, into: Path) -> None:
    work = into / "apt"
    apt = _private_apt(work, f"deb [arch=amd64 signed-by={KEYRING}] {site} {suite} main\n")
    _run(["apt-get", *apt, "update"])
    depends = _run(["apt-cache", *apt, "depends", "--important", KERNEL_PACKAGE])
    named = re.findall(r"^ +Depends: (linux-image-\S+)", depends, re.MULTILINE)
    if not named:
        raise NotObtainable(f"{KERNEL_PACKAGE} depends on no kernel")
    _run(["apt-get", *apt, "download", named[0]], folder=work)
    package = next(work.glob("linux-image-*.deb"))
    _run(["dpkg-deb", "-x", str(package), str(work / "tree")])
    image = next((work / "tree" / "boot").glob("vmlinuz-*"))
    image.rename(into / image.name)
    shutil.rmtree(work)


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


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotObtainable(f"{command[0]} {command[-1]}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise NotObtainable(f"{command[0]} {command[-1]}: {' / '.join(last)}")
    return done.stdout


def main() -> int:
    try:
        print(emulator())
        for release in RELEASES:
            found = kernel(release)
            print(f"{release.codename:10} {found.release}")
    except NotObtainable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
