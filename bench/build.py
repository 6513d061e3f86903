# SPDX-License-Identifier: Apache-2.0
"""Builds what is measured: copies of the driver that does nothing, the loop that calls it, and the empty probes."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import read

SOURCES: Final = Path(__file__).parent
FUNCTIONS: Final = ("cuMemAlloc_v2", "cuMemFree_v2")

PLAIN: Final = "plain"
EMPTY: Final = "empty"
EMPTY_EVENTS: Final = "empty_events"
BPFTRACE: Final = "bpftrace"
TRACED: Final = "traced"
FILES: Final = {
    PLAIN: "plain.so",
    EMPTY: "empty.so",
    EMPTY_EVENTS: "empty_events.so",
    BPFTRACE: "bpftrace.so",
    TRACED: "libcuda.so.1",
}
"""One file for each set of probes. Probes belong to a file, so one program can be measured with all of them in turn.

Only the last has a name by which the tracer takes it for a driver.
"""

DRIVER_FLAGS: Final = (
    *("-shared", "-fPIC", "-fvisibility=hidden"),
    "-O0",  # keeps the frame pointer, and with it `push %rbp`, also where a function has no use for it
    *(("-fcf-protection=none",) if platform.machine() == "x86_64" else ()),
)


class BuildFailed(Exception):
    """A compiler is missing or refused its source; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    drivers: dict[str, Path]
    loop: Path
    empty: Path

    def offset(self, driver: str, function: str) -> int:
        """Where in the file of a driver a function begins."""
        offset = read(self.drivers[driver], frozenset({function})).symbols[function].offset
        assert offset is not None, "the build has checked it"
        return offset


def build(folder: Path) -> Built:
    """Raises BuildFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    built = Built(
        drivers={name: folder / file for name, file in FILES.items()},
        loop=folder / "loop.so",
        empty=folder / "empty.bpf.o",
    )
    warnings = ("-Wall", "-Wextra", "-Werror")
    for path in built.drivers.values():
        path.unlink(missing_ok=True)  # a new file: a probe that is still on the old one shall not be measured
        _run(["gcc", *DRIVER_FLAGS, *warnings, f"-Wl,-soname,{path.name}", "-o", path, SOURCES / "driver.c"])
        _check_beginnings(path)
    _run(["gcc", "-shared", "-fPIC", "-O2", *warnings, "-o", built.loop, SOURCES / "loop.c", "-ldl"])
    _run(
        [
            *("clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall"),
            f"-I/usr/include/{os.uname().machine}-linux-gnu",  # holds asm/, as in the Makefile
            *("-c", SOURCES / "empty.bpf.c", "-o", built.empty),
        ]
    )
    return built


def _check_beginnings(path: Path) -> None:
    """That the kernel need not single-step the probed instructions, which would hide all other costs."""
    if platform.machine() != "x86_64":
        return
    for function in FUNCTIONS:
        text = _run(["objdump", "-d", f"--disassemble={function}", "--no-show-raw-insn", path])
        first = re.search(rf"<{function}>:\n\s*[0-9a-f]+:\s+(\S+\s*\S*)", text)
        if not first or not re.fullmatch(r"push\s+%rbp", first[1].strip()):
            raise BuildFailed(
                f"{function} in {path} begins with {first[1] if first else 'nothing'!r} instead of `push %rbp`: "
                f"gcc did not do as told ({' '.join(DRIVER_FLAGS)})"
            )


def _run(command: Sequence[str | Path]) -> str:
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    except OSError as error:
        raise BuildFailed(f"{command[0]}: {error.strerror}; `make setup` says what to install") from error
    if done.returncode:
        raise BuildFailed(f"{' '.join(str(part) for part in command)}:\n{done.stderr.strip()}")
    return done.stdout
