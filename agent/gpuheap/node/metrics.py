# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics from the tracer's latest reading; the names are in `gpuheap.contract`."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuheap import contract
from gpuheap.heap.model import MemoryKind, Process, Reading, Totals
from gpuheap.heap.totals import by_process
from gpuheap.node.pusher import Outcome

_FAILURE_LABELS: Final = ("node", "process", "pid", "code")

# name, help, counter or gauge, the number
_FAMILIES: Final[
    tuple[tuple[str, str, type[CounterMetricFamily | GaugeMetricFamily], Callable[[Totals], int]], ...]
] = (
    (contract.IN_USE_BYTES, "GPU memory in use.", GaugeMetricFamily, lambda t: t.in_use_bytes),
    (contract.IN_USE_OBJECTS, "Allocations in use.", GaugeMetricFamily, lambda t: t.in_use_objects),
    (contract.ALLOCATED_BYTES, "GPU memory allocated.", CounterMetricFamily, lambda t: t.allocated_bytes),
    (contract.ALLOCATED_OBJECTS, "Allocations made.", CounterMetricFamily, lambda t: t.allocated_objects),
    (
        contract.FREED_BYTES,
        "GPU memory freed, the release by the end of a process included.",
        CounterMetricFamily,
        lambda t: t.freed_bytes,
    ),
)


class ReadingCollector(Collector):
    """Serves the reading that was shown to it last; before the first one there are no samples of processes."""

    def __init__(self, node: str, outcomes: Callable[[], Mapping[Outcome, int]]) -> None:
        self._node = node
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._reading: Reading | None = None

    def show(self, reading: Reading) -> None:
        with self._lock:
            self._reading = reading

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            reading = self._reading
        groups = by_process(reading.totals) if reading else {}
        for name, text, family, number in _FAMILIES:
            metric = family(name, text, labels=contract.PROCESS_LABELS)
            for values, totals in self._series(groups).items():
                metric.add_metric(values, sum(map(number, totals)))
            yield metric
        yield self._failures(reading)
        lost = CounterMetricFamily(
            contract.LOST_EVENTS, "Events that were lost or blurred.", labels=("node", "reason")
        )
        for reason, count in (reading.losses if reading else {}).items():
            lost.add_metric((self._node, reason), count)
        yield lost
        pushed = CounterMetricFamily(
            contract.PUSHED_PROFILES, "Profiles by what became of their push.", labels=("node", "outcome")
        )
        for outcome, count in self._outcomes().items():
            pushed.add_metric((self._node, outcome.value), count)
        yield pushed

    def _series(
        self, groups: Mapping[tuple[Process, MemoryKind], Totals]
    ) -> dict[tuple[str, str, str, str], list[Totals]]:
        """By labels: images of one process that differ only in what the labels do not show are one series."""
        series: dict[tuple[str, str, str, str], list[Totals]] = {}
        for (process, kind), totals in groups.items():
            series.setdefault((self._node, process.name, str(process.pid), kind.value), []).append(totals)
        return series

    def _failures(self, reading: Reading | None) -> Metric:
        counts: dict[tuple[str, str, str, str], int] = {}
        for (process, code), count in (reading.failures if reading else {}).items():
            labels = (self._node, process.name, str(process.pid), str(code))
            counts[labels] = counts.get(labels, 0) + count
        failures = CounterMetricFamily(
            contract.FAILURES, "Allocation calls that failed, by CUresult code.", labels=_FAILURE_LABELS
        )
        for labels, count in counts.items():
            failures.add_metric(labels, count)
        return failures


def registry(collector: Collector) -> CollectorRegistry:
    """The agent's metrics: those of the collector, and the agent process's own CPU time and memory."""
    result = CollectorRegistry(auto_describe=False)
    result.register(collector)
    ProcessCollector(registry=result)
    return result
