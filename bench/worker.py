# SPDX-License-Identifier: Apache-2.0
"""The measured program: makes driver calls below a Python stack of a given depth, and tells what one call cost.

Runs on the interpreter to be measured, with its standard library only. Reads one JSON request a line, answers each
with a JSON line; ends with its input.

    {"do": "load", "drivers": {NAME: PATH}}
    {"do": "measure", "drivers": [NAME], "depth": 20, "rounds": 9, "count": 1000, "threads": 1, "native": 0}
        -> {NAME: {"allocate_ns": [...], "free_ns": [...]}}
    {"do": "hold", "driver": NAME, "depth": 20, "count": 1000}
    {"do": "pace", "driver": NAME, "depth": 20, "rate": allocations a second, "seconds": 10.0, "stacks": 32}
        -> {"seconds": how long all of them took}
    {"do": "mix", "driver": NAME, "depth": 20, "rate": allocations a second, "seconds": 4.0, "stacks": 119}
        -> {"seconds": how long all of them took, "each": allocations by each native stack}
    {"do": "allocations"}               -> {NAME: how many there were in this program's life}
    {"do": "compute", "seconds": 1.0}   calls no driver
        -> {"ms": CPU time of each of many equal pieces of work}
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

WARMING_CALLS = 400
"""Of each chain before it is measured: its functions are then specialised, as in any program that runs for a while."""

PACE_TICK_SECONDS = 0.01

MIXED_CALLS = 2
"""By one native stack before it is the next one's turn."""

COMPUTED_NUMBERS = 50_000

# A function of ordinary size: the tracer may have to read what belongs to all of it, not just the line of the call.
LEVEL = """
def {name}(step, *arguments):
    if step is None:
        first = len(arguments) * 2
        second = first + 1
        third = [first, second]
        for index, value in enumerate(third):
            if index == value:
                second += third[index]
            else:
                first -= value
        raise ValueError(first, second, third)
    return {call}
"""

Step = Callable[..., int]


def main() -> None:
    loop = ctypes.CDLL(sys.argv[1])
    program = Program(loop)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(program, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


class Program:
    def __init__(self, loop: ctypes.CDLL) -> None:
        self._loop = loop
        self._numbers: dict[str, int] = {}
        self._allocations: dict[str, int] = {}
        self._lock = threading.Lock()

    def load(self, drivers: dict[str, str]) -> dict[str, Any]:
        for name, path in drivers.items():
            self._numbers[name] = len(self._numbers)
            self._allocations[name] = 0
            if self._loop.load(self._numbers[name], path.encode()):
                raise SystemExit(f"{path} cannot be loaded")
            self._loop.enter(self._numbers[name])
        return {}

    def measure(
        self,
        drivers: list[str],
        depth: int,
        rounds: int,
        count: int,
        threads: int = 1,
        native: int = 0,
    ) -> dict[str, Any]:
        """`native`: so many C functions more between the Python functions and the driver."""
        samples: dict[str, dict[str, list[float]]] = {
            name: {"allocate_ns": [], "free_ns": []} for name in drivers
        }
        together = threading.Barrier(threads)
        if threads == 1:
            self._rounds(drivers, depth, rounds, count, together, samples, native)
        else:
            arguments = (drivers, depth, rounds, count, together, samples, native)
            running = [threading.Thread(target=self._rounds, args=arguments) for _ in range(threads)]
            for one in running:
                one.start()
            for one in running:
                one.join()
        return samples

    def _rounds(
        self,
        drivers: list[str],
        depth: int,
        rounds: int,
        count: int,
        together: threading.Barrier,
        samples: dict[str, dict[str, list[float]]],
        native: int,
    ) -> None:
        """The drivers take turns, and another one is first in each round: what disturbs one disturbs all."""
        addresses, ns = (ctypes.c_uint64 * count)(), (ctypes.c_double * 2)()
        measure = partial(self._loop.measure_below, native) if native else self._loop.measure
        step = chain(depth - frames_here(), measure)
        for name in drivers:
            self._loop.enter(self._numbers[name])
            for _ in range(WARMING_CALLS):
                step(1, self._numbers[name], 0, addresses, ns)
        for turn in range(-1, rounds):  # the first is for warming up
            for place in range(len(drivers)):
                name = drivers[(turn + place) % len(drivers)]
                together.wait()
                if step(1, self._numbers[name], count, addresses, ns):
                    raise SystemExit(f"a call of {name} failed")
                with self._lock:
                    self._allocations[name] += count
                    if turn >= 0:
                        samples[name]["allocate_ns"].append(ns[0])
                        samples[name]["free_ns"].append(ns[1])

    def allocations(self) -> dict[str, Any]:
        return self._allocations

    def hold(self, driver: str, depth: int, count: int) -> dict[str, Any]:
        step = chain(depth - frames_here(), self._loop.hold)
        if step(1, self._numbers[driver], count):
            raise SystemExit(f"a call of {driver} failed")
        self._allocations[driver] += count
        return {}

    def pace(self, driver: str, depth: int, rate: int, seconds: float, stacks: int) -> dict[str, Any]:
        """Pairs of calls at a steady rate, from as many stacks in turn."""
        addresses, ns = (ctypes.c_uint64 * rate)(), (ctypes.c_double * 2)()
        length = depth - frames_here()
        steps = [chain(length, self._loop.measure, f"stack_{number}") for number in range(stacks)]
        began = time.monotonic()
        made = turn = 0
        while made < rate * seconds:
            passed = min(time.monotonic() - began, seconds)
            due = min(int(rate * passed) - made, rate)
            if due > 0:
                steps[turn % stacks](1, self._numbers[driver], due, addresses, ns)
                made, turn = made + due, turn + 1
            time.sleep(PACE_TICK_SECONDS)
        self._allocations[driver] += made
        return {"seconds": time.monotonic() - began}

    def mix(self, driver: str, depth: int, rate: int, seconds: float, stacks: int) -> dict[str, Any]:
        """Pairs of calls at a steady rate, below 1, 2, 3 ... C functions more: each is another native stack."""
        addresses, ns = (ctypes.c_uint64 * MIXED_CALLS)(), (ctypes.c_double * 2)()
        step = chain(depth - frames_here(), self._loop.measure_below)
        began = time.monotonic()
        each = 0
        while each * stacks < rate * seconds:
            for native in range(1, stacks + 1):
                step(1, native, self._numbers[driver], MIXED_CALLS, addresses, ns)
            each += MIXED_CALLS
            time.sleep(max(0.0, began + each * stacks / rate - time.monotonic()))
        self._allocations[driver] += each * stacks
        return {"seconds": time.monotonic() - began, "each": each}

    def compute(self, seconds: float) -> dict[str, Any]:
        ms: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.thread_time_ns()
            sum(number * number for number in range(COMPUTED_NUMBERS))
            ms.append((time.thread_time_ns() - began) / 1e6)
        return {"ms": ms}


def chain(length: int, innermost: Any, prefix: str = "level") -> Step:
    """The first of `length` functions, each of which calls the next; the last calls `innermost`."""
    if length < 1:
        raise SystemExit(f"the stack is {-length + 1} frames deeper than asked for")
    namespace: dict[str, Any] = {"innermost": innermost}
    calls = [f"{prefix}_{number}(step, *arguments)" for number in range(1, length)]
    calls.append("innermost(*arguments)")
    text = "".join(LEVEL.format(name=f"{prefix}_{number}", call=call) for number, call in enumerate(calls))
    exec(compile(text, f"{prefix}.py", "exec"), namespace)  # noqa: S102 - as many functions as are asked for
    first: Step = namespace[f"{prefix}_0"]
    return first


def frames_here() -> int:
    """How many Python functions the caller's stack has, itself included."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


if __name__ == "__main__":
    main()
