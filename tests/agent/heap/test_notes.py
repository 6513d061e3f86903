# SPDX-License-Identifier: Apache-2.0
from gpuheap.heap.model import HOST, MemoryKind, Pool, PoolTotals, Process
from gpuheap.heap.notes import end_notes, kind_notes, notes, pool_notes
from tests.agent.heap.values import GPU_0, GPU_1, PYTHON, WORKER, reading, site, totals

GIB = 1 << 30


def test_what_in_use_means_is_said_of_each_ended_process() -> None:
    ended = reading({site("load"): totals(100, 100, 80)}, exited=frozenset({PYTHON, WORKER}))
    assert end_notes(ended) == ("python (pid 4711) ended: shown as in use is what it held when it ended",)


def test_what_a_reading_does_not_cover_is_said() -> None:
    lossy = reading(
        {site("x", process=WORKER): totals(10)},
        joined_late=frozenset({WORKER, PYTHON}),
        losses={"of_tomorrow": 2, "fault": 0},
    )
    assert end_notes(lossy) == ()
    assert notes(lossy) == (
        "python (pid 4711) ran before tracing began: what it allocated before is in no figure",
        "worker (pid 4712) ran before tracing began: what it allocated before is in no figure",
        "lost or blurred: of_tomorrow, 2 times",
    )


def test_failed_calls_are_counted_by_process_and_result() -> None:
    failed = reading({}, failures={(WORKER, 1): 2, (PYTHON, 2): 1})
    assert notes(failed) == (
        "python (pid 4711): 1 allocation call failed with CUDA_ERROR_OUT_OF_MEMORY (2)",
        "worker (pid 4712): 2 allocation calls failed with CUDA_ERROR_INVALID_VALUE (1)",
    )


def test_what_pools_of_a_process_keep_is_one_sentence() -> None:
    def keeps(count: int) -> PoolTotals:
        return PoolTotals(in_use_bytes=1, retained_bytes=count)

    pools = {
        Pool(process=PYTHON, device=GPU_0): keeps(GIB),
        Pool(process=PYTHON, device=GPU_0, address=0x7000): keeps(GIB // 2),
        Pool(process=PYTHON, device=GPU_1): keeps(3 << 20),
        Pool(process=PYTHON, device=HOST): keeps(0),
        Pool(process=Process(pid=1, start_ns=1, name="idle"), device=GPU_0): keeps(0),
    }
    (note,) = pool_notes(pools)
    assert note == (
        "python (pid 4711): memory pools keep 1.50 GiB on GPU 0, 3.00 MiB on GPU 1 that no allocation uses; "
        "it is in no figure"
    )


def test_kinds_whose_bytes_are_not_plain_are_explained_when_they_occur() -> None:
    assert kind_notes([site("a"), site("b", kind=MemoryKind.PINNED_HOST)]) == ()
    array, imported = kind_notes([site("a", kind=MemoryKind.IMPORTED), site("b", kind=MemoryKind.ARRAY)])
    assert "estimated" in array
    assert "belongs to another process" in imported
