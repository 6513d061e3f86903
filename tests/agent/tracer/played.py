# SPDX-License-Identifier: Apache-2.0
"""Runs `play` (tests/standin/play.c) under the tracer, line by line, and sums a reading as its tests state it."""

from typing import Self

from gpuheap.heap.model import Reading
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn

START = ("0 cuInit 0", "0 cuDevicePrimaryCtxRetain r1 0", "0 cuCtxSetCurrent r1")
"""Thread 0 works on device 0."""

LAST = ("print 31415926", "31415926")
"""A line, and what it prints: then all before it are done."""

LINES_AT_A_TIME = 500
"""Their answers fit in a pipe."""

Holdings = dict[tuple[str, str], tuple[int, int]]
"""Bytes and objects by kind and device."""


class Played(Program):
    """A `play` on a machine with two devices that has done START."""

    def __init__(self, tracer: Tracer | None, standin: StandIn, **environment: str) -> None:
        super().__init__(
            tracer,
            [standin.play, "-v"],
            standin,
            environment={"STANDIN_CUDA_DEVICES": "2", **environment},
        )
        self.do(*START)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def codes(self, *lines: str) -> list[int]:
        """What the calls of these lines return, and what other lines print."""
        said: list[str] = []
        for at in range(0, len(lines), LINES_AT_A_TIME):
            self.write("\n".join([*lines[at : at + LINES_AT_A_TIME], LAST[0], ""]))
            line = self.line()
            while line != LAST[1]:
                said.append(line)
                assert self._process.stdout
                line = self._process.stdout.readline().strip()
                assert line, "`play` has ended: its standard error says why"
        return [int(line.rpartition(" ")[2]) for line in said]

    def do(self, *lines: str) -> None:
        """Calls that must succeed."""
        codes = self.codes(*lines)
        assert not any(codes), f"the driver refuses what the test takes for granted: {codes} for {lines}"

    def value(self, register: str) -> int:
        return self.codes(f"print {register}")[0]

    def in_use(self) -> Holdings:
        """What the tracer says that this program holds."""
        assert self.tracer
        return in_use(self.tracer.read(), self.pid)


def in_use(reading: Reading, pid: int) -> Holdings:
    """What is in use by a process; kinds and devices with nothing in use are left out."""
    sums: Holdings = {}
    for site, totals in of(reading, pid).items():
        key = (site.kind.value, site.device.text)
        size, objects = sums.get(key, (0, 0))
        sums[key] = (size + totals.in_use_bytes, objects + totals.in_use_objects)
    return {key: held for key, held in sums.items() if held != (0, 0)}


def freed(reading: Reading, pid: int) -> tuple[int, int]:
    """Bytes and objects, of all kinds."""
    one = total(of(reading, pid))
    return one.freed_bytes, one.freed_objects
