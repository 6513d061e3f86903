# SPDX-License-Identifier: Apache-2.0
"""Traces `program.py` in each of its parts, and prints as JSON what the tracer says; or why it cannot trace.

Runs under any kernel. Processes go by the parts they play, as their pids differ; what started as one process and was
replaced by exec is two.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from gpuheap.heap.model import Frame, FrameKind, Process, Reading
from gpuheap.heap.totals import by_process
from gpuheap.tracer import Tracer, TracerError, TracerOptions

PROGRAM: Final = Path(__file__).with_name("program.py")
DEADLINE_SECONDS: Final = 240


class Player:
    """One run of the program; the tracer is polled while the program is waited for."""

    def __init__(self, tracer: Tracer, part: str) -> None:
        self._tracer = tracer
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """The next line it prints. Raises TimeoutError."""
        assert self._process.stdout
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            if select.select([self._process.stdout], [], [], 0)[0]:
                line = self._process.stdout.readline().strip()
                self._tracer.poll(0)  # what it mapped before it printed
                return line
            self._tracer.poll(0.02)
        raise TimeoutError(f"pid {self.pid} printed nothing in {DEADLINE_SECONDS} s")

    def go_on(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self, how: signal.Signals | None = None) -> None:
        if how is not None:
            self._process.send_signal(how)
        self._process.communicate(timeout=DEADLINE_SECONDS)


def play(tracer: Tracer) -> tuple[dict[int, list[str]], Reading]:
    """The parts of each pid, one for each program that it ran, and the reading while the model is still there."""
    model, mover, victim, mixer = (Player(tracer, part) for part in ("model", "leave", "die", "mix"))
    for player in (model, mover, victim, mixer):
        player.line()
        player.go_on()
    child = int(model.line().removeprefix("forked "))
    mover.line()
    mover.go_on()  # and another program says that it is there
    for _ in range(2):
        mover.line()
        mover.go_on()
    mover.end()
    victim.line()
    victim.end(signal.SIGKILL)
    mixer.line()
    reading = tracer.read()
    for player in (model, mixer):
        player.end()
    return {
        model.pid: ["model"],
        child: ["child"],
        mover.pid: ["leave", "arrive"],
        victim.pid: ["die"],
        mixer.pid: ["mix"],
    }, reading


def answer(parts: dict[int, list[str]], reading: Reading) -> dict[str, Any]:
    def part(process: Process) -> str:
        names = parts.get(process.pid, [])
        return names[process.generation] if process.generation < len(names) else f"{process.name}?"

    stacks: dict[str, dict[str, int]] = {}
    libraries: dict[str, set[str]] = {}
    for site, sums in reading.totals.items():
        of_part = stacks.setdefault(f"{part(site.process)} {site.kind}", {})
        native = [frame for frame in site.stack if frame.kind is FrameKind.NATIVE]
        # Not the functions: only some machines have the debug information that names all of them.
        libraries.setdefault(part(site.process), set()).add(
            ";".join(Path(frame.code_file).name for frame in native)
        )
        key = ";".join(_frame(frame) for frame in site.stack if frame.kind is not FrameKind.NATIVE)
        of_part[key] = of_part.get(key, 0) + sums.allocated_bytes
    return {
        "totals": {
            f"{part(group.process)} {group.kind} {group.device.text}": {
                "allocated": [sums.allocated_bytes, sums.allocated_objects],
                "freed": [sums.freed_bytes, sums.freed_objects],
                "released_at_exit": [sums.released_at_exit_bytes, sums.released_at_exit_objects],
            }
            for group, sums in by_process(reading.totals).items()
        },
        "stacks": stacks,
        "libraries": {name: sorted(found) for name, found in libraries.items()},
        "failures": {f"{part(process)} {code}": calls for (process, code), calls in reading.failures.items()},
        "exited": sorted(part(process) for process in reading.exited),
        "losses": {name: count for name, count in reading.losses.items() if count},
    }


def _frame(frame: Frame) -> str:
    return f"{frame.function}:{frame.line}"


def main() -> None:
    found: dict[str, Any]
    started = time.monotonic()
    try:
        with Tracer(TracerOptions(pids=frozenset({os.getpid()}), native_stacks=True)) as tracer:
            found = answer(*play(tracer))
    except TracerError as error:
        found = {"error": str(error), "type": type(error).__name__}
    print(json.dumps({"kernel": os.uname().release, "seconds": time.monotonic() - started, **found}))


if __name__ == "__main__":
    main()
