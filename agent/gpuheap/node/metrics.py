# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics from the tracer's latest reading; the names are in `gpuheap.contract`."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuheap import contract
from gpuheap.heap.losses import with_zeros
from gpuheap.heap.model import Device, Process, Reading, Totals
from gpuheap.heap.totals import by_process
from gpuheap.node.pusher import Outcome

Labels = tuple[str, ...]

_LATE_LABELS: Final = ("node", "process", "pid")
_FAILURE_LABELS: Final = (*_LATE_LABELS, "code")
NOTHING_READ: Final = Reading(taken_unix_ns=0, totals={})

# name, help, counter or gauge, the number
_FAMILIES: Final[
    tuple[tuple[str, str, type[CounterMetricFamily | GaugeMetricFamily], Callable[[Totals], int]], ...]
] = (
    (
        contract.IN_USE_BYTES,
        "Memory in use, by kind: kinds are never added up.",
        GaugeMetricFamily,
        lambda t: t.in_use_bytes,
    ),
    (contract.IN_USE_OBJECTS, "Allocations in use.", GaugeMetricFamily, lambda t: t.in_use_objects),
    (contract.ALLOCATED_BYTES, "Memory allocated.", CounterMetricFamily, lambda t: t.allocated_bytes),
    (contract.ALLOCATED_OBJECTS, "Allocations made.", CounterMetricFamily, lambda t: t.allocated_objects),
    (
        contract.FREED_BYTES,
        "Memory freed, the release by the end of a process included.",
        CounterMetricFamily,
        lambda t: t.freed_bytes,
    ),
)


class ReadingCollector(Collector):
    """Serves the reading that was shown to it last; before the first one there are no samples of processes.

    A reason for losses is there with 0 before it occurs: a rule sees its first occurrence as a rise."""

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
        reading = reading or NOTHING_READ
        groups: dict[Labels, list[Totals]] = {}
        for group, totals in by_process(reading.totals).items():
            # Images of one process that differ only in what the labels do not show are one series.
            labels = (*self._process(group.process), group.kind.value, *_device(group.device))
            groups.setdefault(labels, []).append(totals)
        for name, text, family, number in _FAMILIES:
            metric = family(name, text, labels=contract.PROCESS_LABELS)
            for values, several in groups.items():
                metric.add_metric(values, sum(map(number, several)))
            yield metric
        yield self._pools(reading)
        yield self._joined_late(reading)
        yield self._failures(reading)
        yield self._by(
            "reason", contract.LOST_EVENTS, "Events that were lost or blurred.", with_zeros(reading.losses)
        )
        outcomes = {outcome.value: count for outcome, count in self._outcomes().items()}
        yield self._by(
            "outcome", contract.PUSHED_PROFILES, "Profiles by what became of their push.", outcomes
        )

    def _process(self, process: Process) -> Labels:
        return self._node, process.name, str(process.pid)

    def _by(self, label: str, name: str, text: str, counts: Mapping[str, int]) -> Metric:
        """A counter of the agent itself."""
        metric = CounterMetricFamily(name, text, labels=("node", label))
        for value, count in counts.items():
            metric.add_metric((self._node, value), count)
        return metric

    def _pools(self, reading: Reading) -> Metric:
        text = "Memory that stream-ordered pools keep beyond their allocations; in no other family."
        metric = GaugeMetricFamily(contract.POOL_RETAINED_BYTES, text, labels=contract.POOL_LABELS)
        kept: Counter[Labels] = Counter()
        for pool, totals in reading.pools.items():
            kept[*self._process(pool.process), *_device(pool.device)] += totals.retained_bytes
        for labels, count in kept.items():
            metric.add_metric(labels, count)
        return metric

    def _joined_late(self, reading: Reading) -> Metric:
        text = "1 for a process that ran before tracing began: its earlier allocations are in no figure."
        metric = GaugeMetricFamily(contract.JOINED_LATE, text, labels=_LATE_LABELS)
        for labels in sorted({self._process(process) for process in reading.joined_late}):
            metric.add_metric(labels, 1)
        return metric

    def _failures(self, reading: Reading) -> Metric:
        text = "Allocation calls that failed, by CUresult code."
        metric = CounterMetricFamily(contract.FAILURES, text, labels=_FAILURE_LABELS)
        counts: Counter[Labels] = Counter()
        for (process, code), count in reading.failures.items():
            counts[*self._process(process), str(code)] += count
        for labels, count in counts.items():
            metric.add_metric(labels, count)
        return metric


def _device(device: Device) -> Labels:
    return device.text, device.uuid


def registry(collector: Collector) -> CollectorRegistry:
    """The agent's metrics: those of the collector, and the agent process's own CPU time and memory."""
    result = CollectorRegistry(auto_describe=False)
    result.register(collector)
    ProcessCollector(registry=result)
    return result
