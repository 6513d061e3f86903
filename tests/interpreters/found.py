# SPDX-License-Identifier: Apache-2.0
"""The builds of CPython that tests go through: installed ones, pyenv's, uv's, and those of `archive`.

NAMES is what is looked for; `command` finds one, or says why it is not here, so that a test is skipped visibly.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.debian import NotObtainable

from . import archive

NAMES: Final = (
    *("3.8-pyenv", "3.9-pyenv", "3.10-pyenv", "3.11-pyenv", "3.12-pyenv", "3.13-pyenv"),
    *("3.11-installed", "3.13-debian", "3.14-debian", "3.15-debian", "3.14-standalone"),
    *("3.13t-built", "3.14t-built", "3.15t-built"),
)
"""Version (with a `t` when it is free-threaded), and whose build it is."""

UV: Final = Path(".local/share/uv/python")


def version(name: str) -> tuple[int, int]:
    major, minor = name.partition("-")[0].rstrip("t").split(".")
    return int(major), int(minor)


@cache
def command(name: str) -> tuple[str, ...]:
    """What runs this build; arguments follow. Raises NotObtainable."""
    text, _, whose = name.partition("-")
    if whose == "debian":
        return _unstable(text)
    if whose == "standalone":
        return (str(archive.standalone() / "bin" / f"python{text}"),)
    path = _free_threaded(text) if whose == "built" else _installed(text, pyenv=whose == "pyenv")
    if subprocess.run([path, "-c", "import ctypes"], capture_output=True, check=False).returncode:
        raise NotObtainable(f"{path} has no ctypes")
    return (str(path),)


def _installed(text: str, *, pyenv: bool) -> Path:
    """pyenv's newest of this version, or the one on PATH that is no script of pyenv's."""
    versions = (Path.home() / ".pyenv" / "versions").resolve()  # GDB goes by where files are
    folders = (
        sorted(versions.glob(f"{text}.*/bin"), reverse=True)
        if pyenv
        else [Path(folder) for folder in os.get_exec_path() if ".pyenv" not in folder]
    )
    for folder in folders:
        if (folder / f"python{text}").exists():
            return folder / f"python{text}"
    raise NotObtainable(f"{'pyenv has' if pyenv else 'there is'} no CPython {text} here")


def _free_threaded(text: str) -> Path:
    """On PATH, pyenv's, uv's, or the one that was built here."""
    number = text.removesuffix("t")
    folders = (
        *map(Path, os.get_exec_path()),
        *sorted((Path.home() / ".pyenv" / "versions").glob(f"{number}.*t/bin"), reverse=True),
        *sorted((Path.home() / UV).glob(f"cpython-{number}.*+freethreaded-*/bin"), reverse=True),
    )
    for folder in folders:
        if ".pyenv/shims" not in str(folder) and (folder / f"python{text}").exists():
            return folder / f"python{text}"
    return archive.free_threaded(number)


def _unstable(text: str) -> tuple[str, ...]:
    root = archive.unstable()
    libraries = root / archive.LIBRARIES
    # Its loader takes the place of the machine's, whose C library is too old.
    script = (
        f"PYTHONHOME={root}/usr exec {libraries}/ld-linux-x86-64.so.2 "
        f'--library-path "$LD_LIBRARY_PATH:{libraries}" {root}/usr/bin/python{text} "$@"'
    )
    return ("/bin/sh", "-c", script, "sh")
