# SPDX-License-Identifier: Apache-2.0
"""Which files are CUDA drivers, and where their functions are.

A driver is told by what it is, not by its path: a node holds several versions, containers bring copies, programs
reach them by hard links and bind mounts, and toolkits ship stubs of the same name that only satisfy the linker.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import Symbol, read

from .calls import Call
from .dynamic_section import soname

NAME: Final = re.compile(r"^libcuda\.so(\.[\d.]+)?$")
"""Of the file, and of the library inside: libcuda.so.1 in NVIDIA's own."""

NECESSARY: Final = frozenset({Call.cuInit, Call.cuMemAlloc_v2, Call.cuMemFree_v2})
"""In every driver since CUDA 3.2."""

RETURNS_A_CONSTANT: Final = re.compile(
    rb"(\xf3\x0f\x1e\xfa)?"  # endbr64
    rb"(\x55\x48\x89\xe5)?"  # push %rbp; mov %rsp,%rbp
    rb"([\x44\x48\x4c]?\x89[\x45\x4d\x55\x75\x7d].)*"  # mov argument,offset(%rbp)
    rb"(\xb8....|[\x31\x33]\xc0)"  # mov $constant,%eax; xor %eax,%eax
    rb"[\x5d\xc9]?\xc3",  # pop %rbp, or leave; ret
    re.DOTALL,
)
"""A whole function of x86-64 that does nothing else. In a toolkit's libcuda.so (`cuda-driver-dev`: read in CUDA 11.8)
each function is `mov $34,%eax; ret`: CUDA_ERROR_STUB_LIBRARY. Unoptimised stubs of other makers keep the frame.

The size of functions tells nothing: those that a real driver exports are jumps of 30 bytes (read in 535.261).
"""
_CODE_BYTES: Final = 64

FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
)
"""Where drivers are usually installed: only to probe them before anyone maps them. What is elsewhere is found when it
is mapped."""
ROOTS: Final = (Path("/"), Path("/proc/1/root"))
"""The agent's own, and, for an agent in a container that sees the machine's processes, the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """Offsets in the file of the probed functions that it has, each place once."""

    path: Path
    functions: Mapping[Call, int]


def looks_like_driver(path: Path, name: str) -> bool:
    """Whether a file is worth reading: by its name, or by the one that the library in it has. Raises OSError.

    `name` is what the process knows the file by; `path` only needs to lead there.
    """
    if has_driver_name(name):
        return True
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return NAME.match(soname(fd) or "") is not None
    finally:
        os.close(fd)


def has_driver_name(path: str) -> bool:
    return NAME.match(path.rpartition("/")[2]) is not None


def driver_file(path: Path, name: str | None = None) -> DriverFile | None:
    """The driver in this file, None if it is none. Raises NotUsable, OSError.

    The name of the library in the file decides, where it has one: others export these functions, too, to forward
    them. `name` is what the file is known by, if `path` does not say it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        own_name = soname(fd)
    finally:
        os.close(fd)
    if not has_driver_name(own_name or name or str(path)):
        return None
    allocate = Call.cuMemAlloc_v2.name
    found = read(path, frozenset(call.name for call in Call), {allocate: _CODE_BYTES})
    functions = _functions(found.symbols)
    if not functions.keys() >= NECESSARY or RETURNS_A_CONSTANT.match(found.contents[allocate]):
        return None
    return DriverFile(path=path, functions=functions)


def _functions(symbols: Mapping[str, Symbol]) -> dict[Call, int]:
    """A place with two names is probed once, by the first of `Call`: a second probe would count everything twice."""
    functions: dict[Call, int] = {}
    taken: set[int] = set()
    for call in Call:
        symbol = symbols.get(call.name)
        if symbol is not None and symbol.offset is not None and symbol.offset not in taken:
            functions[call] = symbol.offset
            taken.add(symbol.offset)
    return functions


def installed_drivers() -> list[Path]:
    """Drivers that a program started now would probably load: probed before anyone maps them."""
    preloaded = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    folders = [folder for folder in preloaded if folder.is_absolute()]
    folders += [root / folder.lstrip("/") for root in ROOTS for folder in FOLDERS]
    found = [folder / "libcuda.so.1" for folder in folders]
    return [path for path in [*found, *_known_to_loader()] if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _known_to_loader() -> list[Path]:
    try:
        done = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [Path(path) for path in re.findall(r"libcuda\.so\.1 .*=> (\S+)", done.stdout)]
