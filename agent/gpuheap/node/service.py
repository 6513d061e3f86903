# SPDX-License-Identifier: Apache-2.0
"""The loop of `gpuheap agent`: poll the tracer, read on the grid, show the metrics, hand profiles to the pusher.

One thread owns the tracer. Nothing here waits for the network.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from gpuheap.heap.losses import loss_notes
from gpuheap.heap.model import Reading
from gpuheap.heap.samples import SiteValues, of_end, of_interval
from gpuheap.heap.totals import by_process
from gpuheap.node.grid import Grid
from gpuheap.node.log import LOGGER, line
from gpuheap.node.pushes import Push, pushes
from gpuheap.node.settings import AgentSettings
from gpuheap.node.source import Source

POLL_SECONDS: Final = 0.5
"""The longest wait in the tracer: how fast the loop sees that it is to stop, also where no signal wakes it."""

STALE_SECONDS: Final = 30.0


class Sink(Protocol):
    """Where profiles go. Must not wait."""

    def submit(self, pushes: Iterable[Push]) -> None: ...


class Service:
    def __init__(
        self,
        settings: AgentSettings,
        source: Source,
        *,
        show: Callable[[Reading], None],
        sink: Sink | None,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._source = source
        self._show = show
        self._sink = sink
        self._wall_clock_ns = wall_clock_ns
        self._monotonic = monotonic
        self._last_poll: float | None = None
        self._earlier: Reading | None = None
        self._earlier_ns = wall_clock_ns()

    def healthy(self) -> str | None:
        """What is wrong with the loop, for the liveness probe: it must have polled within `STALE_SECONDS`."""
        if self._last_poll is None:
            return None  # still attaching; the readiness probe says so
        silent = self._monotonic() - self._last_poll
        return f"the tracer was polled last {silent:.0f} s ago" if silent > STALE_SECONDS else None

    def ready(self) -> str | None:
        """Why the service does not trace yet, for the readiness probe."""
        return "the tracer was not polled yet" if self._last_poll is None else self.healthy()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; then what was allocated since the last push is pushed."""
        grid = Grid(self._settings.interval_seconds, self._earlier_ns)
        self._show(self._source.read())  # metrics are there before the first point of the grid
        while not stop.is_set():
            self._source.poll(min(POLL_SECONDS, grid.seconds_left(self._wall_clock_ns())))
            self._last_poll = self._monotonic()
            point = grid.due(self._wall_clock_ns())
            if point is not None:
                self._take(point, of_interval)
        self._take(self._wall_clock_ns(), of_end)

    def _take(self, time_unix_ns: int, values_of: Callable[[Reading | None, Reading], SiteValues]) -> None:
        reading = self._source.read()
        self._show(reading)
        profiles = pushes(
            values_of(self._earlier, reading),
            node=self._settings.node,
            cluster=self._settings.cluster,
            time_unix_ns=time_unix_ns,
            duration_ns=max(0, time_unix_ns - self._earlier_ns),
            notes=loss_notes(reading.losses),
            joined_late=reading.joined_late,
            detail=self._settings.frames,
        )
        if self._sink is not None:
            self._sink.submit(profiles)
        if reading.exited:
            self._source.forget(reading.exited)
        self._earlier, self._earlier_ns = reading, time_unix_ns
        LOGGER.info(
            line(
                "reading",
                processes=len({site.process for site in reading.totals}),
                ended=len(reading.exited),
                stacks=len(reading.totals),
                **_in_use(reading),
                lost=sum(reading.losses.values()),
                profiles=len(profiles) if self._sink is not None else 0,
            )
        )


def _in_use(reading: Reading) -> dict[str, int]:
    """`in_use_bytes_KIND` for each memory kind."""
    sums: dict[str, int] = {}
    for group, totals in by_process(reading.totals).items():
        name = f"in_use_bytes_{group.kind.value}"
        sums[name] = sums.get(name, 0) + totals.in_use_bytes
    return sums
