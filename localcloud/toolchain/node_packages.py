# SPDX-License-Identifier: Apache-2.0
"""What a node needs that is not built here: containerd, runc, CNI plugins, iptables, ipset and busybox.

They come from the distribution (Debian, Ubuntu) as packages, and are unpacked into the cache: nothing is installed. apt
fetches them and checks the signatures.
"""

import os
import platform
import shutil
from pathlib import Path
from typing import Final

from localcloud.toolchain import command
from localcloud.toolchain.cache import cache_folder, content_hash
from localcloud.toolchain.cache import provide as provide_folder
from localcloud.toolchain.errors import SetupFailed
from localcloud.toolchain.progress import Step, step

PACKAGES: Final = (
    "busybox-static",
    "containerd",
    "containernetworking-plugins",
    "ipset",
    "iptables",
    "runc",
    # What these link to, and a machine may lack.
    "libip4tc2",
    "libip6tc2",
    "libipset13",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libseccomp2",
    "libxtables12",
)
RECIPE: Final = "1"
"""Raised when the way of unpacking changes."""

TABLES: Final = ("iptables", "ip6tables")
LINKS: Final = tuple(f"{table}{suffix}" for table in TABLES for suffix in ("", "-save", "-restore"))
"""The distribution's scripts link these when the packages are installed."""

LOG: Final = "node-packages"
HINT: Final = "all but a real node works without them; run it again when the packages can be had"


def folder() -> Path:
    """Where the unpacked packages lie: `usr`, `bin` and `lib` below it, as they would in `/`."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:  # no such file
        release = {}
    named = f"{release.get('ID', 'linux')}-{release.get('VERSION_ID', '0')}"
    return cache_folder() / f"node-{named}-{content_hash([], RECIPE, platform.machine(), *PACKAGES)}"


def lacks() -> str | None:
    """Why this machine cannot have the packages; None if it can, or has them."""
    if folder().exists():
        return None
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"containerd and runc come from Debian's or Ubuntu's packages, and there is no {tool}"
    if os.geteuid() != 0:
        return "a node is run by root"
    return None


def provide() -> str | None:
    """Fetch and unpack them if that is possible here; the reason if it is not. The caller holds the cache's lock."""
    if (reason := lacks()) is None and not folder().exists():
        try:
            with step("Packages of a node: containerd, runc, CNI, iptables") as running:
                provide_folder(folder(), lambda unfinished: _fetch(unfinished, running))
        except SetupFailed as error:
            return str(error)
    return reason


def _fetch(unfinished: Path, running: Step) -> None:
    fetched = unfinished / "packages"
    fetched.mkdir()
    try:
        _download(fetched, running)
    except SetupFailed:  # lists that were never fetched, or name versions that are gone
        command.run(["apt-get", "-q", "update"], log=LOG, hint=HINT)
        _download(fetched, running)
    for package in fetched.glob("*.deb"):
        command.run(["dpkg-deb", "--extract", str(package), str(unfinished)], log=LOG, hint=HINT)
    shutil.rmtree(fetched)
    for name in LINKS:
        (unfinished / "usr" / "sbin" / name).symlink_to("xtables-nft-multi")


def _download(fetched: Path, running: Step) -> None:
    command.run(
        ["apt-get", "-q", "download", *PACKAGES],
        log=LOG,
        hint=HINT,
        folder=fetched,
        on_line=lambda line: running.says(line[:80]),
    )
