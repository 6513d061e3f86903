# SPDX-License-Identifier: Apache-2.0
"""What the service and the recorder need of a tracer: `gpuheap.tracer.Tracer` gives it, tests give made-up readings."""

from typing import Protocol

from gpuheap.heap.model import Process, Reading


class Source(Protocol):
    def poll(self, timeout_seconds: float) -> None:
        """Wait for news at most so long, and handle what is there."""

    def read(self) -> Reading:
        """Everything since tracing began, of processes that have ended too, until they are forgotten."""

    def forget(self, processes: frozenset[Process]) -> None:
        """Leave these ended processes out of later readings."""
