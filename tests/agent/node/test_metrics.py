# SPDX-License-Identifier: Apache-2.0
"""The text as prometheus_client's own parser reads it."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpuheap import contract
from gpuheap.heap.model import HOST, UNKNOWN_DEVICE, MemoryKind, Pool, PoolTotals, Process, Reading
from gpuheap.node.metrics import ReadingCollector, registry
from gpuheap.node.pusher import Outcome
from tests.agent.heap.values import GPU_0, GPU_1, PYTHON, WORKER, reading, site, totals

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


def of_python(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    memory = {"kind": "device", "device": "0", "gpu": "GPU-aaaa", **labels}
    return of(name, **{"process": "python", "pid": "4711", **memory})


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
    assert samples[of_python("gpuheap_memory_in_use_bytes", process="worker", pid="4712")] == 7


def test_kinds_and_devices_are_series_of_their_own() -> None:
    samples = scraped(
        reading(
            {
                site("load"): totals(100),
                site("load", device=GPU_1): totals(50),
                site("load", kind=MemoryKind.PINNED_HOST, device=HOST): totals(7),
                site("load", device=UNKNOWN_DEVICE): totals(3),
            }
        )
    )
    in_use = "gpuheap_memory_in_use_bytes"
    assert {key: value for key, value in samples.items() if key[0] == in_use} == {
        of_python(in_use): 100,
        of_python(in_use, device="1", gpu="GPU-bbbb"): 50,
        of_python(in_use, kind="pinned_host", device="host", gpu=""): 7,
        of_python(in_use, device="unknown", gpu=""): 3,
    }


def test_what_pools_keep_is_a_gauge_by_device_and_in_no_other() -> None:
    pools = {
        Pool(process=PYTHON, device=GPU_0): PoolTotals(in_use_bytes=10, retained_bytes=30),
        Pool(process=PYTHON, device=GPU_0, address=0x7000): PoolTotals(in_use_bytes=0, retained_bytes=5),
        Pool(process=PYTHON, device=GPU_1): PoolTotals(in_use_bytes=10, retained_bytes=0),
    }
    samples = scraped(reading({site("load"): totals(20)}, pools=pools))
    kept = "gpuheap_pool_retained_bytes"
    of_pool = {"process": "python", "pid": "4711"}
    assert samples[of(kept, **of_pool, device="0", gpu="GPU-aaaa")] == 35
    assert samples[of(kept, **of_pool, device="1", gpu="GPU-bbbb")] == 0
    assert samples[of_python("gpuheap_memory_in_use_bytes")] == 20


def test_a_process_that_ran_before_tracing_is_marked_even_without_memory() -> None:
    samples = scraped(reading({site("load"): totals(20)}, joined_late=frozenset({WORKER})))
    late = {key: value for key, value in samples.items() if key[0] == "gpuheap_process_joined_late"}
    assert late == {of("gpuheap_process_joined_late", process="worker", pid="4712"): 1}


def test_the_names_are_those_of_the_contract() -> None:
    names = {
        name
        for name, _ in scraped(
            reading(
                {site("load"): totals(10)},
                failures={(PYTHON, 2): 1},
                joined_late=frozenset({PYTHON}),
                pools={Pool(process=PYTHON, device=GPU_0): PoolTotals(in_use_bytes=1, retained_bytes=1)},
            ),
            {Outcome.STORED: 1},
        )
    }
    assert names >= {
        contract.IN_USE_BYTES,
        contract.IN_USE_OBJECTS,
        contract.ALLOCATED_BYTES,
        contract.ALLOCATED_OBJECTS,
        contract.FREED_BYTES,
        contract.POOL_RETAINED_BYTES,
        contract.JOINED_LATE,
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


def test_each_known_reason_of_losses_is_there_with_zero_before_the_first_reading() -> None:
    samples = scraped(None)
    for reason in ("pending_full", "unknown_release", "oom_blurred", "driver_found_late"):
        assert samples[of("gpuheap_lost_events_total", reason=reason)] == 0, "its first occurrence is a rise"


def test_a_reason_that_is_not_known_here_is_served_as_it_is() -> None:
    samples = scraped(reading({}, losses={"of_tomorrow": 4}))
    assert samples[of("gpuheap_lost_events_total", reason="of_tomorrow")] == 4


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
    assert samples[of_python("gpuheap_memory_in_use_bytes", process='a"b\n\\c', pid="5")] == 10
