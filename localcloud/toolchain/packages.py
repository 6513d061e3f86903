# SPDX-License-Identifier: Apache-2.0
"""Distribution packages: what packages.txt names is looked for, and installed where set-up may."""

import ctypes
import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcloud.toolchain import command
from localcloud.toolchain.pins import MODULES
from localcloud.toolchain.progress import step

LIST: Final = MODULES / "packages.txt"
HINT: Final = "install them by hand, then run it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A line of packages.txt: a package, what it provides as `kind:name`, and what happens without it."""

    name: str
    provides: str
    without: str

    @property
    def present(self) -> bool:
        kind, _, name = self.provides.partition(":")
        return PROBES[kind](name)


def listed(text: str) -> list[Package]:
    """The packages of a list in the form of packages.txt."""
    lines = [line.split(None, 2) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Package(name=name, provides=provides, without=without) for name, provides, without in lines]


def provide() -> list[Package]:
    """Install what is missing if that is possible here; what is missing still."""
    missing = [package for package in listed(LIST.read_text()) if not package.present]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return missing
    names = [package.name for package in missing]
    with step(f"Distribution packages: {', '.join(names)}") as running:
        apt = ["apt-get", "-y", "-q"]
        environment = {"DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "--no-install-recommends", *names]):
            command.run(
                [*apt, *arguments],
                log="distribution-packages",
                hint=HINT,
                environment=environment,
                on_line=lambda line: running.says(line[:80]),
            )
    return [package for package in missing if not package.present]


def report(missing: Iterable[Package]) -> list[str]:
    """One line for each package: what it is, and what is skipped for the lack of it."""
    return [f"not installed: {package.name} ({package.provides}); {package.without}" for package in missing]


def _is_header(name: str) -> bool:
    machine = str(sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
    roots = (Path("/usr/include"), Path("/usr/include") / machine, Path("/usr/local/include"))
    return any((root / name).is_file() for root in roots)


def _is_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


PROBES: Final[dict[str, Callable[[str], bool]]] = {
    "command": lambda name: shutil.which(name) is not None,
    "header": _is_header,
    "library": _is_library,
    "module": lambda name: importlib.util.find_spec(name) is not None,
}
