# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in driver and the C program that exercises it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
FLAGS: Final = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """`folder` belongs on LD_LIBRARY_PATH: it holds libcuda.so.1."""

    folder: Path
    threads: Path

    @property
    def library(self) -> Path:
        return self.folder / "libcuda.so.1"

    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.folder)}


def build(folder: Path) -> StandIn:
    """Compiles into `folder`. Raises CalledProcessError, or FileNotFoundError without gcc."""
    folder.mkdir(parents=True, exist_ok=True)
    built = StandIn(folder=folder, threads=folder / "threads")
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")
    for target, source, flags in (
        (built.library, "libcuda.c", shared),
        (built.threads, "threads.c", ("-ldl",)),
    ):
        subprocess.run(["gcc", *FLAGS, "-o", target, SOURCES / source, *flags], check=True)
    return built
