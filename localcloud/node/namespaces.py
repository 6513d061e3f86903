# SPDX-License-Identifier: Apache-2.0
"""The mount and network namespaces of a node, and how commands run in them."""

import ctypes
import os
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from localcloud.kube.component import ComponentFailed

LAYOUT: Final = Path(__file__).with_name("layout.sh")
ADDRESS: Final = "10.199.0.1"
"""The node's own address, in a network that only it sees."""

CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
COMMAND_SECONDS: Final = 120
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Namespaces:
    """Namespaces that last from `open` to `close`, or as long as this process.

    `packages` is where the unpacked packages lie, whose programs commands in the namespaces find.
    """

    def __init__(self, folder: Path, packages: Path) -> None:
        self._folder = folder
        self._packages = packages
        self._holder: subprocess.Popen[str] | None = None

    def open(self) -> None:
        """Make them. Raises ComponentFailed when the kernel or a missing program does not let us."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unshare = ["unshare", "--mount", "--net", "--propagation", "private", "--"]
        self._holder = subprocess.Popen(
            [*unshare, "/bin/sh", str(LAYOUT), str(self._folder), ADDRESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        assert self._holder.stdout
        said = self._holder.stdout.readline()
        if said != "ready\n":
            said += self._holder.stdout.read()
            self.close()
            raise ComponentFailed(f"the node's mounts and links cannot be made: {said.strip()}")

    def close(self) -> None:
        """Let them go: they end with the last process in them. Does nothing when they are not open."""
        if self._holder:
            assert self._holder.stdin
            assert self._holder.stdout
            self._holder.stdin.close()
            self._holder.wait()
            self._holder.stdout.close()
            self._holder = None

    @property
    def pid(self) -> int:
        """A process in them."""
        assert self._holder
        return self._holder.pid

    def entering(self, *, mounts: bool = True) -> tuple[str, ...]:
        """What to put before a command so that it runs in them, or in the network alone."""
        command = ("nsenter", f"--net=/proc/{self.pid}/ns/net")
        return (*command, f"--mount=/proc/{self.pid}/ns/mnt", "--wd=/", "--") if mounts else (*command, "--")

    @property
    def environment(self) -> dict[str, str]:
        """What makes commands find the packages' programs, and those their libraries."""
        return environment(self._packages)

    def run(self, command: Sequence[str]) -> str:
        """What a command printed that ran in them. Raises ComponentFailed with its error."""
        done = subprocess.run(
            [*self.entering(), *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
        )
        if done.returncode:
            text = (done.stderr or done.stdout).strip()
            raise ComponentFailed(f"`{' '.join(command)}` on the node ended with {done.returncode}: {text}")
        return done.stdout


def environment(packages: Path) -> dict[str, str]:
    """What makes commands find the programs of unpacked packages, and those their libraries."""
    usr = packages / "usr"
    machine = str(sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
    programs = [str(usr / "sbin"), str(usr / "bin"), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    libraries = [str(usr / "lib" / machine), str(packages / "lib" / machine)]
    return {
        "PATH": os.pathsep.join(programs),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "XTABLES_LIBDIR": str(usr / "lib" / machine / "xtables"),
    }


def enter_network(pid: int) -> None:
    """Put the calling thread, and no other, into the network of a process. Raises OSError."""
    with Path(f"/proc/{pid}/ns/net").open() as network:
        if _LIBC.setns(network.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the network of process {pid}: {os.strerror(number)}")
