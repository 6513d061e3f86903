# SPDX-License-Identifier: Apache-2.0
"""The control groups of a node: one name in every hierarchy, under which the runtime and all pods are.

By it they are found and ended together, also those that a killed supervisor left.
"""

import os
import re
import time
from itertools import count
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
NAME: Final = re.compile(r"gpuheap-node-(\d+)-\d+")
CONTROLLERS: Final = {"cpu", "cpuset", "hugetlb", "memory", "pids"}
"""Those that the kubelet uses."""

END_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02
_numbers = count(1)


class ControlGroup:
    """The groups of one node of this process; `root` is where the kernel shows control groups."""

    def __init__(self, root: Path = ROOT) -> None:
        self.name = f"gpuheap-node-{os.getpid()}-{next(_numbers)}"
        self._root = root

    def create(self) -> None:
        """Make them, with a group for the runtime, whose processes must not be in a group that has groups."""
        enable_controllers(self._root)
        for hierarchy in hierarchies(self._root):
            group = hierarchy / self.name
            group.mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):
                # Version 1 starts without any processor, and then takes no process.
                if (group / setting).exists() and unified(self._root) != hierarchy:
                    (group / setting).write_text((hierarchy / setting).read_text())
        self._runtime.mkdir()

    def add(self, pid: int) -> None:
        """Put a process into the runtime's group; those that it starts will be there, too."""
        (self._runtime / "cgroup.procs").write_text(str(pid))

    def end(self) -> None:
        """Kill all that is in them, and remove them. Does nothing when they are not there."""
        end(self.name, self._root)

    @property
    def _runtime(self) -> Path:
        return unified(self._root) / self.name / "runtime"


def hierarchies(root: Path = ROOT) -> list[Path]:
    """One of version 2, or all that are mounted: of version 1, and the one of version 2 beside them."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(each for each in root.iterdir() if each.is_dir() and not each.is_symlink())


def unified(root: Path = ROOT) -> Path:
    """The hierarchy of version 2, which can end a group as a whole."""
    return root if (root / "cgroup.controllers").exists() else root / "unified"


def enable_controllers(root: Path = ROOT) -> None:
    """Where there is version 2 alone, let groups have all controllers that the kernel offers: the kubelet asks for it.

    Usually systemd has done so.
    """
    if unified(root) != root:
        return
    offered = (root / "cgroup.controllers").read_text().split()
    enabled = (root / "cgroup.subtree_control").read_text().split()
    for controller in sorted(set(offered) & CONTROLLERS - set(enabled)):
        (root / "cgroup.subtree_control").write_text(f"+{controller}")


def end(name: str, root: Path = ROOT) -> None:
    """Kill all that is in a group, and remove it from every hierarchy. Raises TimeoutError."""
    deadline = time.monotonic() + END_SECONDS
    group = unified(root) / name
    if group.exists():
        (group / "cgroup.kill").write_text("1")
        while "populated 0" not in (group / "cgroup.events").read_text():
            _pause(f"processes of {group} do not end", deadline)
    for hierarchy in hierarchies(root):
        while not _removed(hierarchy / name):
            _pause(f"{hierarchy / name} cannot be removed", deadline)


def sweep(root: Path = ROOT) -> None:
    """End the groups of supervisors that are no more."""
    for hierarchy in hierarchies(root):
        for group in list(hierarchy.iterdir()):
            match = NAME.fullmatch(group.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                end(group.name, root)


def _removed(group: Path) -> bool:
    """Whether the group and all below it are gone, as far as they can be removed now."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:  # a process in it is just ending
            return False
    return True


def _pause(what: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"{what} within {END_SECONDS:.0f} s")
    time.sleep(POLL_SECONDS)
