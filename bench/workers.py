# SPDX-License-Identifier: Apache-2.0
"""The measured programs, seen from outside: starts them, asks them, and lets the tracer work while they do."""

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.build import Built

PROGRAM: Final = Path(__file__).with_name("worker.py")
TURN_SECONDS: Final = 0.05
"""How long the tracer may take before the program's answer is looked for again."""

Meanwhile = Callable[[float], None]
"""What is done while a program works; gets the longest time that it may take in seconds."""


class WorkerFailed(Exception):
    """The measured program ended, or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one driver file: nanoseconds a call, one sample a round."""

    allocate_ns: list[float]
    free_ns: list[float]


class Worker:
    """One program, from its start to the end of the `with` block."""

    def __init__(self, interpreter: Path, built: Built, meanwhile: Meanwhile = time.sleep) -> None:
        self._meanwhile = meanwhile
        self._process = subprocess.Popen(
            [interpreter, "-I", "-S", PROGRAM, built.loop],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def go_first(self) -> None:
        """Real-time priority: other work on the machine does not slow it."""
        os.sched_setscheduler(self.pid, os.SCHED_FIFO, os.sched_param(1))

    def load(self, drivers: dict[str, Path]) -> None:
        self.ask({"do": "load", "drivers": {name: str(path) for name, path in drivers.items()}})

    def measure(
        self,
        drivers: Iterable[str],
        *,
        depth: int,
        rounds: int,
        count: int,
        threads: int = 1,
        native: int = 0,
    ) -> dict[str, Cost]:
        names = list(drivers)
        return costs(
            self.ask(
                {
                    "do": "measure",
                    "drivers": names,
                    "depth": depth,
                    "rounds": rounds,
                    "count": count,
                    "threads": threads,
                    "native": native,
                }
            )
        )

    def allocations(self, driver: str) -> int:
        """How many there were in the program's life."""
        return int(self.ask({"do": "allocations"})[driver])

    def ask(self, request: dict[str, Any], seconds: float = 300) -> dict[str, Any]:
        self.begin(request)
        return self.answer(seconds)

    def begin(self, request: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = 300) -> dict[str, Any]:
        """Raises WorkerFailed."""
        assert self._process.stdout
        end = time.monotonic() + seconds
        while not select.select([self._process.stdout], [], [], 0)[0]:
            if time.monotonic() > end:
                raise WorkerFailed(f"pid {self.pid} did not answer in {seconds:.0f} s")
            self._meanwhile(TURN_SECONDS)
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"pid {self.pid} ended with {self._process.wait()}; its own message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def costs(answer: dict[str, Any]) -> dict[str, Cost]:
    return {name: Cost(**cost) for name, cost in answer.items()}
