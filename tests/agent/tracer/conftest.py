# SPDX-License-Identifier: Apache-2.0
"""The stand-in driver, the tracer, and programs that allocate."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuheap.heap.model import Reading, Site, Totals
from gpuheap.tracer import Tracer, TracerOptions
from tests.standin.build import StandIn, build
from tests.waiting import DEADLINE_SECONDS

COMPILED = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build(tmp_path_factory.mktemp("driver"))


@contextmanager
def tracing(standin: StandIn, *, native_stacks: bool) -> Iterator[Tracer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(standin.folder))
        with Tracer(TracerOptions(native_stacks=native_stacks)) as tracer:
            yield tracer


@pytest.fixture(scope="module")
def shared_tracer(standin: StandIn) -> Iterator[Tracer]:
    with tracing(standin, native_stacks=False) as tracer:
        yield tracer


@pytest.fixture(scope="session")
def compiled(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a C program that calls the driver, by its text and more flags. It has no frame pointers."""

    def compiled(text: str, *flags: str) -> Path:
        program = tmp_path_factory.mktemp("program") / "program"
        source = program.with_suffix(".c")
        source.write_text(text)
        command = ["gcc", *COMPILED, *flags, "-o", str(program), str(source), str(standin.library)]
        subprocess.run(command, check=True)
        return program

    return compiled


@pytest.fixture
def tracer(shared_tracer: Tracer) -> Iterator[Tracer]:
    """Probes set on the stand-in before anyone maps it, as on a node where the driver is installed.

    The tests of a file have one, as loading takes the kernel most of a second; what has ended is forgotten after each.
    Without native stacks, which differ from machine to machine; those have tests of their own.
    """
    yield shared_tracer
    shared_tracer.forget(shared_tracer.read().exited)


@pytest.fixture
def losses(tracer: Tracer) -> Callable[[], dict[str, int]]:
    """What was lost since the test began: a count for each reason that there was."""
    before = tracer.read().losses
    return lambda: {
        name: count - before[name] for name, count in tracer.read().losses.items() if count > before[name]
    }


class Program:
    """A process that prints lines and ends when its input does; the tracer is polled while it is waited for."""

    def __init__(
        self,
        tracer: Tracer | None,
        command: list[str | Path],
        standin: StandIn,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.tracer = tracer
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **standin.environment(), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def line(self, seconds: float = DEADLINE_SECONDS) -> str:
        """The next line it prints. Fails the test when none comes."""
        assert self._process.stdout
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self._process.stdout], [], [], 0 if self.tracer else 0.02)[0]:
                return self._process.stdout.readline().strip()
            if self.tracer:
                self.tracer.poll(0.02)
        raise AssertionError(f"pid {self.pid} printed nothing in {seconds} s")

    def go_on(self) -> None:
        self.write("\n")

    def write(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def end(self) -> int:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        code = self._process.wait(DEADLINE_SECONDS)
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)


@pytest.fixture
def start(tracer: Tracer, standin: StandIn) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*command: str | Path) -> Program:
        programs.append(Program(tracer, list(command), standin))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def of(reading: Reading, pid: int) -> dict[Site, Totals]:
    return {site: totals for site, totals in reading.totals.items() if site.process.pid == pid}


def total(sites: dict[Site, Totals]) -> Totals:
    names = Totals.__dataclass_fields__
    return Totals(**{name: sum(getattr(one, name) for one in sites.values()) for name in names})
