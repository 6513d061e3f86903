# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in driver and the C programs that exercise it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
FLAGS: Final = ("-g", "-Wall", "-Wextra", "-Werror", "-pthread")
DRIVER_FLAGS: Final = (
    "-O1",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wl,-soname,libcuda.so.1",
    # Every exported function begins with `push %rbp`: a probe there is cheap, since the kernel emulates it. Most other
    # first instructions it steps over, for which it traps twice.
    "-fcf-protection=none",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
    "-fno-shrink-wrap",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """`folder` belongs on LD_LIBRARY_PATH: it holds libcuda.so.1."""

    folder: Path
    threads: Path
    play: Path

    @property
    def library(self) -> Path:
        return self.folder / "libcuda.so.1"

    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.folder)}


def build(folder: Path) -> StandIn:
    """Compiles into `folder`. Raises CalledProcessError, or FileNotFoundError without gcc."""
    folder.mkdir(parents=True, exist_ok=True)
    built = StandIn(folder=folder, threads=folder / "threads", play=folder / "play")
    _compile(built.library, *sorted((SOURCES / "driver").glob("*.c")), flags=DRIVER_FLAGS)
    for program in (built.threads, built.play):
        _compile(program, *sorted(SOURCES.glob(f"{program.name}*.c")), flags=("-O2", "-ldl"))
    return built


def _compile(target: Path, *sources: Path, flags: tuple[str, ...]) -> None:
    subprocess.run(["gcc", *FLAGS, "-o", target, *sources, *flags], check=True)
