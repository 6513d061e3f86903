# SPDX-License-Identifier: Apache-2.0
"""A tracer that plays given readings, one for each `read`, and remembers what was asked of it."""

from collections.abc import Callable, Sequence

from gpuheap.heap.model import Process, Reading


class PlayedSource:
    """The last reading is repeated. `on_poll` is called with the time-out of each poll."""

    def __init__(
        self, readings: Sequence[Reading], on_poll: Callable[[float], None] = lambda _: None
    ) -> None:
        self._readings = list(readings)
        self._on_poll = on_poll
        self.forgotten: list[frozenset[Process]] = []
        self.polls = 0

    def poll(self, timeout_seconds: float) -> None:
        self.polls += 1
        self._on_poll(timeout_seconds)

    def read(self) -> Reading:
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]

    def forget(self, processes: frozenset[Process]) -> None:
        self.forgotten.append(processes)
