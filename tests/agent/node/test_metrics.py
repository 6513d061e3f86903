# SPDX-License-Identifier: Apache-2.0
"""The text as prometheus_client's own parser reads it."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpuheap import contract
from gpuheap.heap.model import Process, Reading
from gpuheap.node.metrics import ReadingCollector, registry
from gpuheap.node.pusher import Outcome
from tests.agent.heap.values import PYTHON, WORKER, reading, site, totals

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(shown: Reading | None, outcomes: dict[Outcome, int] | None = None) -> Samples:
    collector = ReadingCollector("n1", lambda: outcomes or {})
    if shown is not None:
        collector.show(shown)
    text = generate_latest(registry(collector)).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"node": "n1", **labels}.items())


def of_python(name: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return of(name, process="python", pid="4711", kind="device")


def test_a_process_has_its_sums_over_threads_and_stacks() -> None:
    samples = scraped(
        reading(
            {
                site("load"): totals(100, 40),
                site("step", thread_id=2): totals(50),
                site("x", process=WORKER): totals(7),
            }
        )
    )
    assert samples[of_python("gpuheap_memory_in_use_bytes")] == 110
    assert samples[of_python("gpuheap_memory_in_use_objects")] == 11
    assert samples[of_python("gpuheap_memory_allocated_bytes_total")] == 150
    assert samples[of_python("gpuheap_memory_allocated_objects_total")] == 15
    assert samples[of_python("gpuheap_memory_freed_bytes_total")] == 40
    assert samples[of("gpuheap_memory_in_use_bytes", process="worker", pid="4712", kind="device")] == 7


def test_the_names_are_those_of_the_contract() -> None:
    names = {
        name
        for name, _ in scraped(
            reading({site("load"): totals(10)}, failures={(PYTHON, 2): 1}), {Outcome.STORED: 1}
        )
    }
    assert names >= {
        contract.IN_USE_BYTES,
        contract.IN_USE_OBJECTS,
        contract.ALLOCATED_BYTES,
        contract.ALLOCATED_OBJECTS,
        contract.FREED_BYTES,
        contract.FAILURES,
        contract.LOST_EVENTS,
        contract.PUSHED_PROFILES,
    }


def test_failures_losses_and_pushes_are_counted_by_their_reason() -> None:
    samples = scraped(
        reading({}, failures={(PYTHON, 2): 3}, losses={"ring_full": 5, "fault": 0}), {Outcome.REFUSED: 2}
    )
    assert samples[of("gpuheap_allocation_failures_total", process="python", pid="4711", code="2")] == 3
    assert samples[of("gpuheap_lost_events_total", reason="ring_full")] == 5
    assert samples[of("gpuheap_lost_events_total", reason="fault")] == 0, "a rule can tell 0 from absent"
    assert samples[of("gpuheap_profiles_pushed_total", outcome="refused")] == 2


def test_images_of_one_process_are_one_series() -> None:
    after = Process(pid=PYTHON.pid, start_ns=PYTHON.start_ns, name=PYTHON.name, generation=1)
    samples = scraped(reading({site("a"): totals(10, 10, 10), site("b", process=after): totals(20)}))
    assert samples[of_python("gpuheap_memory_in_use_bytes")] == 20
    assert samples[of_python("gpuheap_memory_allocated_bytes_total")] == 30


def test_before_the_first_reading_there_are_only_the_agents_own_metrics() -> None:
    assert not [name for name, _ in scraped(None) if name.startswith("gpuheap_memory")]
    assert ("process_resident_memory_bytes", frozenset()) in scraped(None)


def test_a_process_name_with_quotes_and_line_ends_does_not_break_the_text() -> None:
    odd = Process(pid=5, start_ns=5, name='a"b\n\\c')
    samples = scraped(reading({site("x", process=odd): totals(10)}))
    assert samples[of("gpuheap_memory_in_use_bytes", process='a"b\n\\c', pid="5", kind="device")] == 10
