# SPDX-License-Identifier: Apache-2.0
"""Runs `play` (tests/standin/play.c) under the tracer, line by line, and sums a reading as its tests state it."""

from collections.abc import Callable

from gpuheap.heap.model import Reading
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn

START = ("0 cuInit 0", "0 cuDevicePrimaryCtxRetain r1 0", "0 cuCtxSetCurrent r1")
"""Thread 0 works on device 0."""

END_OF_LINES = "print 31415926"

Holdings = dict[tuple[str, str], tuple[int, int]]
"""Bytes and objects by kind and device."""


class Played:
    """A `play` on a machine with two devices that has done START."""

    def __init__(self, start: Callable[..., Program], standin: StandIn, *settings: str) -> None:
        """`settings` are variables of the stand-in driver, NAME=VALUE."""
        command = ("env", "STANDIN_CUDA_DEVICES=2", *settings, standin.play, "-v")
        self.program = start(*command)
        self.pid = self.program.pid
        self.do(*START)

    def codes(self, *lines: str) -> list[int]:
        """What the calls of these lines return, and what other lines print."""
        self.program.write("\n".join([*lines, END_OF_LINES, ""]))
        said = list(iter(self.program.line, END_OF_LINES.split()[1]))
        return [int(line.rpartition(" ")[2]) for line in said]

    def do(self, *lines: str) -> None:
        """Calls that must succeed."""
        assert not any(self.codes(*lines)), "the driver refuses a call that the test takes for granted"

    def value(self, register: str) -> int:
        return self.codes(f"print {register}")[0]

    def in_use(self, tracer: Tracer) -> Holdings:
        """What the tracer says that this program holds."""
        return in_use(tracer.read(), self.pid)


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
