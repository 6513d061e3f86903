# SPDX-License-Identifier: Apache-2.0
"""Runs one Python script under another kernel: this machine's Python and agent, in memory, in an emulated machine.

The files inside have the paths they have here, so the same command with the same environment runs in both places.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.kernels.archive import Kernel, emulator
from tests.kernels.init import MOUNTS
from tests.kernels.initramfs import Initramfs

REPOSITORY: Final = Path(__file__).resolve().parents[2]
INIT: Final = Path(__file__).with_name("init.py")
PYTHON: Final = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
STANDARD_LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
DEPENDENCIES: Final = ("elftools",)
"""What the tracer imports that is neither the standard library nor the agent."""

NOT_NEEDED: Final = frozenset(
    {"test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "turtledemo", "pydoc_data"}
    | {"site-packages", "dist-packages"}
)
"""Parts of the standard library, which are most of its size."""

EXTENSIONS_NOT_NEEDED: Final = re.compile(
    r"_tkinter|_?test|_xx|xx|_sqlite3|_ssl|_hashlib|_crypt|_curses|readline|_dbm|_gdbm|nis|_codecs|ossaudio"
)
"""Extension modules that bring libraries along, or are large; `hashlib` does without its own."""

MEMORY_MIB: Final = 1536
DEADLINE_SECONDS: Final = 1200
CONSOLE_LINES: Final = 40


class MachineFailed(Exception):
    """The machine did not answer; the text ends with what its console showed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A script of this repository that prints JSON, and what it needs beside the agent."""

    script: Path
    files: tuple[Path, ...] = ()
    environment: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        return [str(PYTHON), str(self.script)]

    @property
    def variables(self) -> dict[str, str]:
        paths = {str(REPOSITORY / "agent"), *(str(package.parent) for package in _dependencies())}
        return {
            "PATH": f"{PYTHON.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": os.pathsep.join(sorted(paths)),
            **self.environment,
        }


def run_here(job: Job, hidden: Mapping[Path, Path] | None = None) -> Any:
    """The script's answer on the kernel that runs; it sees each key of `hidden` with the content of its value.

    Raises CalledProcessError.
    """
    binds = [
        f"mount --bind {shlex.quote(str(new))} {shlex.quote(str(old))}" for old, new in (hidden or {}).items()
    ]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", " && ".join([*binds, f"exec {shlex.join(job.command)}"])],
        env=job.variables,
        stdout=subprocess.PIPE,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    return json.loads(done.stdout)


def run_under(kernel: Kernel, job: Job, folder: Path) -> Any:
    """The script's answer under `kernel`; `folder` takes the machine's files. Raises MachineFailed, NotObtainable."""
    initramfs, console, result = folder / "initramfs", folder / "console", folder / "result"
    write_initramfs(initramfs, job, folder)
    command = _emulation(kernel, initramfs, console, result)
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_SECONDS,
        )
        return json.loads(result.read_text())
    except subprocess.TimeoutExpired as error:
        raise MachineFailed(
            f"kernel {kernel.release} did not finish in {DEADLINE_SECONDS} s:\n{_tail(console)}"
        ) from error
    except subprocess.CalledProcessError as error:
        raise MachineFailed(f"kernel {kernel.release}: the emulator failed: {error.stderr}") from error
    except (OSError, ValueError) as error:
        raise MachineFailed(f"kernel {kernel.release} gave no answer:\n{_tail(console)}") from error


def write_initramfs(into: Path, job: Job, folder: Path) -> None:
    """All that the job needs, in one archive."""
    files = Initramfs()
    extensions = [path for path in STANDARD_LIBRARY.glob("lib-dynload/*.so") if _wanted(path)]
    files.add_program(PYTHON, *extensions, *_libbpf())
    files.add_tree(STANDARD_LIBRARY, _wanted)
    files.add_tree(REPOSITORY / "agent" / "gpuheap", _wanted)
    for package in _dependencies():
        files.add_tree(package, _wanted)
    for path in (INIT, job.script, *job.files):
        files.add(path)
    description = {"command": job.command, "environment": job.variables}
    files.write(
        into,
        folders=["/tmp", *(place for place in MOUNTS if place.count("/") == 1)],
        texts={"/job.json": json.dumps(description)},
    )


def _emulation(kernel: Kernel, initramfs: Path, console: Path, result: Path) -> list[str | Path]:
    # What follows `--` are the arguments of the first process.
    # On a busy machine the emulated timer is late, and a kernel that tests it panics.
    line = f"console=ttyS0 quiet no_timer_check panic=-1 mitigations=off rdinit={PYTHON} -- -I {INIT}"
    options: dict[str, str | Path] = {
        "-machine": "pc",
        "-cpu": "max",
        "-smp": "2",
        "-m": str(MEMORY_MIB),
        "-display": "none",
        "-monitor": "none",
        "-nic": "none",
        "-kernel": kernel.image,
        "-initrd": initramfs,
        "-append": line,
    }
    serial = ["-serial", f"file:{console}", "-serial", f"file:{result}"]
    words = [word for option in options.items() for word in option]
    return [emulator(), "-nodefaults", "-no-reboot", "-accel", "tcg,thread=multi", *words, *serial]


def _wanted(path: Path) -> bool:
    if path.name in NOT_NEEDED or path.name.startswith("config-"):
        return False
    if path.parent.name == "lib-dynload" and EXTENSIONS_NOT_NEEDED.match(path.name):
        return False
    return path.suffix != ".pyc" or ".opt-" not in path.name


def _libbpf() -> list[Path]:
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return [Path(line.rpartition(" => ")[2]) for line in listed.splitlines() if "libbpf.so.1 " in line][:1]


def _dependencies() -> list[Path]:
    found = [find_spec(name) for name in DEPENDENCIES]
    return [Path(spec.origin).parent for spec in found if spec is not None and spec.origin is not None]


def _tail(console: Path) -> str:
    try:
        lines = console.read_text(errors="replace").splitlines()
    except OSError:
        return "(its console stayed empty)"
    return "\n".join(lines[-CONSOLE_LINES:])
