# SPDX-License-Identifier: Apache-2.0
"""Which files are CUDA drivers, and where their functions are.

A driver is told by what it exports, not by its path: a node holds several versions, containers bring copies, and
toolkits ship stubs of the same name that only satisfy the linker.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import read

ALLOCATE: Final = "cuMemAlloc_v2"
FREE: Final = "cuMemFree_v2"
NAME: Final = re.compile(r"^libcuda\.so(\.[\d.]+)?$")

STANDARD_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """Offsets in the file of the probed functions."""

    path: Path
    allocate: int
    free: int


def looks_like_driver(path: str) -> bool:
    """Whether a mapped file is worth opening. `stubs` is where CUDA toolkits keep theirs."""
    folder, _, name = path.rpartition("/")
    return bool(NAME.match(name)) and not folder.endswith("/stubs")


def driver_file(path: Path) -> DriverFile | None:
    """The driver in this file, None if it is none. Raises NotUsable."""
    symbols = read(path, frozenset({ALLOCATE, FREE})).symbols
    allocate, free = symbols.get(ALLOCATE), symbols.get(FREE)
    if allocate is None or free is None or allocate.offset is None or free.offset is None:
        return None
    return DriverFile(path=path, allocate=allocate.offset, free=free.offset)


def installed_drivers() -> list[Path]:
    """Drivers that a program started from here would load: probed before anyone maps them."""
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *STANDARD_FOLDERS]
    found = [Path(folder) / "libcuda.so.1" for folder in folders if Path(folder).is_absolute()]
    return [
        path
        for path in [*found, *_cached_by_loader()]
        if path.exists() and looks_like_driver(str(path.resolve()))
    ]


def _cached_by_loader() -> list[Path]:
    try:
        done = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [Path(path) for path in re.findall(r"libcuda\.so\.1 .*=> (\S+)", done.stdout)]
