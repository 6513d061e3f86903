# SPDX-License-Identifier: Apache-2.0
"""Runs the transformer on the stand-in under the tracer, and keeps what all three say after each step."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Self

from gpuheap.heap.model import (
    Frame,
    FrameKind,
    MemoryKind,
    OutOfMemory,
    Pool,
    PoolTotals,
    Reading,
    Site,
    Totals,
)
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn
from tests.standin.player import Ledger, parse

TRANSFORMER: Final = Path(__file__).with_name("transformer.py")
STEPS: Final = ("weights", "cache", "forward", "backward", "pinned", "out_of_memory", "empty")
STEP_SECONDS: Final = 240
"""Importing PyTorch takes eight seconds of a processor that others may want, too."""


class Allocator(Enum):
    """What PyTorch asks the driver for memory with; the value is the setting for it."""

    CACHING = ("", "")
    EXPANDABLE_SEGMENTS = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    CUDA_MALLOC_ASYNC = ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    NONE = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")

    @property
    def environment(self) -> dict[str, str]:
        name, value = self.value
        return {name: value} if name else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was the case when a step was done: PyTorch's figures, the driver's, the tracer's."""

    pid: int
    reserved_bytes: int
    tensor_bytes: int
    """What PyTorch calls allocated."""
    main_thread: int
    ledger: Ledger
    reading: Reading

    @classmethod
    def of(cls, name: str, line: str, *, pid: int, reading: Reading) -> Self:
        figures = json.loads(line)
        assert figures["step"] == name
        return cls(
            pid=pid,
            reserved_bytes=figures["reserved"],
            tensor_bytes=figures["allocated"],
            main_thread=figures["thread"],
            ledger=parse(json.dumps(figures["ledger"])),
            reading=reading,
        )

    def sites(self, kind: MemoryKind = MemoryKind.DEVICE) -> dict[Site, Totals]:
        return {site: totals for site, totals in of(self.reading, self.pid).items() if site.kind is kind}

    def in_use(self, kind: MemoryKind = MemoryKind.DEVICE) -> tuple[int, int]:
        """Bytes and objects, as the tracer says."""
        one = total(self.sites(kind))
        return one.in_use_bytes, one.in_use_objects

    def allocated_bytes(self) -> int:
        return total(self.sites()).allocated_bytes

    def allocated_where(self, wanted: Callable[[Site], bool]) -> int:
        """Bytes of device memory, whether in use or not."""
        return sum(totals.allocated_bytes for site, totals in self.sites().items() if wanted(site))

    def pools(self) -> dict[Pool, PoolTotals]:
        return {pool: one for pool, one in self.reading.pools.items() if pool.process.pid == self.pid}

    def out_of_memory(self) -> list[OutOfMemory]:
        return [one for one in self.reading.out_of_memory if one.site.process.pid == self.pid]


def run(
    tracer: Tracer, standin: StandIn, python: Path, allocator: Allocator, bytecode: Path
) -> dict[str, Step]:
    """All steps by name. Compiling what it imports is half of a run: `bytecode` is where a run leaves it for others."""
    environment = {"PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    program = Program(
        tracer, [python, TRANSFORMER], standin, environment={**allocator.environment, **environment}
    )
    steps: dict[str, Step] = {}
    try:
        for name in STEPS:
            line = program.line(STEP_SECONDS)
            steps[name] = Step.of(name, line, pid=program.pid, reading=tracer.read())
            program.go_on()
        assert program.end() == 0
    finally:
        program.kill()
    return steps


def marked(name: str) -> int:
    """The number of the program's line with the comment `site: name`."""
    lines = TRANSFORMER.read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if line.endswith(f"# site: {name}"))


def passes(name: str) -> Callable[[Site], bool]:
    """Whether a site's stack goes through the line with the mark."""
    line = marked(name)
    return lambda site: any(frame.line == line and is_ours(frame) for frame in site.stack)


def runs(function: str) -> Callable[[Site], bool]:
    """Whether a function of the program is on a site's stack."""
    return lambda site: any(frame.function == function and is_ours(frame) for frame in site.stack)


def is_ours(frame: Frame) -> bool:
    return Path(frame.file).name == TRANSFORMER.name


def last_python(stack: Sequence[Frame]) -> Frame:
    """The innermost Python function."""
    return next(frame for frame in reversed(stack) if frame.kind is FrameKind.PYTHON)
