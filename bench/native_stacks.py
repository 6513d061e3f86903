# SPDX-License-Identifier: Apache-2.0
"""What native stacks cost in user space: unwinding, cold and warm, and the names of the largest library there is.

That is PyTorch's, if `make test-torch` has installed it. Lines are those of the interpreter, if it was built with debug
information. How the kernel side takes its part is in other files.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile

from bench.build import Built
from bench.figures import BadMeasurement, Figure, Outcome, median, single
from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.unwinder import Unwinder
from tests.agent.stacks.stopped import reading_thread, traced, waiting
from tests.torch.installation import installed

LEVELS: Final = (2, 8, 20)
"""Calls from Python into C and back. The interpreter has about ten native frames for each."""

STACK_BYTES: Final = 1 << 20
SAMPLES: Final = 20
LOOKUPS: Final = 5
MIN_LINES_BYTES: Final = 1 << 20
"""Of line programs: an interpreter's whole code has them, not its start alone."""

UNITS: Final = {
    "first_ms": "ms",
    "first_cpu_ms": "ms",
    "first_mib": "MiB",
    "more_cpu_us": "us",
    "all_mib": "MiB",
}
PROGRAM: Final = """
import os, sys
def inner(levels):
    return sorted([levels - 1], key=inner) if levels else os.read(0, 1)
inner(int(sys.argv[1]))
"""


def native_stacks(_built: Built, interpreter: Path) -> Outcome:
    figures, notes = list(_unwinding(interpreter)), []
    libraries = sorted(installed().folder.rglob("libtorch_cpu.so"))
    if libraries:
        figures += _symbols("symbols", libraries[0])
        notes.append(f"symbols: {libraries[0].name}, {libraries[0].stat().st_size / 1e6:.0f} MB")
    else:
        notes.append("symbols were not looked up: PyTorch is not installed, `make test-torch` does it")
    described = _with_lines(interpreter)
    if described is not None:
        figures += _symbols("lines", described)
        notes.append(f"lines: {described.name}, {described.stat().st_size / 1e6:.0f} MB")
    else:
        notes.append(f"lines were not looked up: {interpreter} was built without debug information")
    return Outcome(figures=figures, notes=notes)


def _with_lines(interpreter: Path) -> Path | None:
    """The interpreter's file, or its library, with debug information."""
    program = interpreter.resolve()
    for file in (*(program.parent.parent / "lib").glob("libpython3.*.so.*"), program):
        with file.open("rb") as stream:
            section = ELFFile(stream).get_section_by_name(".debug_line")
            if section is not None and section["sh_size"] > MIN_LINES_BYTES:
                return file
    return None


def _unwinding(interpreter: Path) -> Iterator[Figure]:
    for levels in LEVELS:
        with (
            waiting(str(interpreter), "-c", PROGRAM, str(levels)) as process,
            traced(reading_thread(process)) as thread,
        ):
            snapshot = thread.snapshot(STACK_BYTES)
            cold: list[float] = []
            warm: list[float] = []
            frames = 0
            for _ in range(SAMPLES):
                memory_map = MemoryMap(process.pid)  # with files that nobody has looked into
                for times in (cold, warm):
                    began = time.thread_time()
                    found = Unwinder().unwind(snapshot, memory_map)
                    times.append((time.thread_time() - began) * 1e6)
                    if found.reason is not None:
                        raise BadMeasurement(f"a stack of {interpreter} cannot be unwound: {found.reason}")
                frames = len(found.addresses)
        yield single(f"unwind_frames_{levels}", frames, "frames")
        yield median(f"unwind_cold_cpu_us_{levels}", cold, "us")
        yield median(f"unwind_warm_cpu_us_{levels}", warm, "us")


def _symbols(what: str, library: Path) -> Iterator[Figure]:
    found = [_looked_up(library) for _ in range(LOOKUPS)]
    cold = [_looked_up(library, "--cold") for _ in range(LOOKUPS)]
    for name, unit in UNITS.items():
        yield median(f"{what}_{name}", [one[name] for one in found], unit)
    yield median(f"{what}_cold_first_ms", [one["first_ms"] for one in cold], "ms")


def _looked_up(library: Path, *options: str) -> dict[str, float]:
    answer = subprocess.run(
        [sys.executable, "-m", "bench.symbol_lookup", str(library), *options], capture_output=True, text=True
    )
    if answer.returncode:
        raise BadMeasurement(f"the symbols of {library} cannot be looked up: {answer.stderr.strip()}")
    found: dict[str, float] = json.loads(answer.stdout)
    return found
