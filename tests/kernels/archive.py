# SPDX-License-Identifier: Apache-2.0
"""Kernels of Debian's releases, and the emulator to boot them, from the archive that this machine's apt uses.

Owns what is fetched and where it is kept: one folder a release in the per-user cache, so that a second run fetches
nothing. `python -m tests.kernels.archive` fetches everything beforehand.
"""

import fcntl
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcloud.toolchain.cache import cache_folder, provide
from tests.debian import Archive, NotObtainable, run, sites

EMULATOR: Final = "qemu-system-x86_64"
EMULATOR_PACKAGE: Final = "qemu-system-x86"
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"
"""Depends on the release's newest kernel for virtual machines: a third of the size, with BTF and uprobes built in."""


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
        run(["apt-get", "-q", "update"])
        run(["apt-get", "-q", "-y", "install", "--no-install-recommends", EMULATOR_PACKAGE])
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
    if not all(_kept(release).exists() for release in RELEASES) and not sites():
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
    found = sites()
    both = ((f"{release.codename}-security", "security"), (release.codename, "main"))
    return [(suite, found[kind]) for suite, kind in both if kind in found]


def _fetch_from(site: str, suite: str, into: Path) -> None:
    archive = Archive(into / "apt", site, suite)
    named = re.findall(r"^ +Depends: (linux-image-\S+)", archive.depends(KERNEL_PACKAGE), re.MULTILINE)
    if not named:
        raise NotObtainable(f"{KERNEL_PACKAGE} depends on no kernel")
    archive.download(named[0])
    archive.unpack(archive.work / "tree")
    image = next((archive.work / "tree" / "boot").glob("vmlinuz-*"))
    image.rename(into / image.name)
    shutil.rmtree(archive.work)


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
