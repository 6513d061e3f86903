# SPDX-License-Identifier: Apache-2.0
"""The rules of the push API are those measured on a real server: see the docstrings of the code."""

from dataclasses import replace

from gpuheap.heap.model import HOST, Frame, FrameKind, MemoryKind, Process, Site
from gpuheap.node.pushes import Push, pushes
from gpuheap.profile.decode import decode
from gpuheap.profile.encode import encode
from gpuheap.stacks.display import Detail
from tests.agent.heap.values import GPU_1, MOMENT, PYTHON, WORKER, site


def made(values: dict[Site, tuple[int, int, int, int]], cluster: str = "") -> list[Push]:
    return pushes(
        values, node="n1", cluster=cluster, time_unix_ns=MOMENT, duration_ns=15_000_000_000, notes=("n",)
    )


def test_each_process_is_a_series_of_its_own() -> None:
    both = made({site("load"): (1, 10, 1, 10), site("step", process=WORKER): (2, 20, 2, 20)}, cluster="c1")
    assert [dict(push.labels) for push in both] == [
        {
            "__name__": "gpu_memory",
            "__delta__": "false",
            "service_name": name,
            "node": "n1",
            "process": name,
            "pid": pid,
            "kind": "device",
            "device": "0",
            "gpu": "GPU-aaaa",
            "cluster": "c1",
        }
        for name, pid in (("python", "4711"), ("worker", "4712"))
    ]


def test_each_kind_and_device_of_a_process_is_a_series_of_its_own() -> None:
    several = made(
        {
            site("load"): (1, 10, 1, 10),
            site("load", call="cuMemAlloc_v2"): (2, 20, 2, 20),
            site("load", device=GPU_1): (3, 30, 3, 30),
            site("load", kind=MemoryKind.PINNED_HOST, device=HOST): (4, 40, 4, 40),
        }
    )
    found = {}
    for push in several:
        labels = dict(push.labels)
        key = (labels["kind"], labels["device"], labels.get("gpu"))
        found[key] = [sample.values for sample in decode(push.pprof, name="x").samples]
    assert found == {
        ("device", "0", "GPU-aaaa"): [(3, 30, 3, 30)],
        ("device", "1", "GPU-bbbb"): [(3, 30, 3, 30)],
        ("pinned_host", "host", None): [(4, 40, 4, 40)],
    }


def test_a_profile_says_what_its_own_process_and_kind_lack() -> None:
    values = {site("load"): (1, 10, 1, 10), site("x", process=WORKER, kind=MemoryKind.ARRAY): (1, 10, 1, 10)}
    python, worker = pushes(
        values, node="n1", cluster="", time_unix_ns=MOMENT, duration_ns=1, joined_late=frozenset({WORKER})
    )
    assert decode(python.pprof, name="x").notes == ()
    assert [note.partition(":")[0] for note in decode(worker.pprof, name="x").notes] == [
        "worker (pid 4712) ran before tracing began",
        "array memory is estimated from size and format",
    ]


def test_the_profile_holds_the_values_with_time_and_duration() -> None:
    (push,) = made({site("main", "load"): (1, 10, 3, 30)})
    profile = decode(push.pprof, name="push")
    assert (profile.time_unix_ns, profile.duration_ns, profile.notes) == (MOMENT, 15_000_000_000, ("n",))
    assert [(s.values, [f.function for f in s.stack], s.labels) for s in profile.samples] == [
        ((1, 10, 3, 30), ["main", "load"], (("device", "0"), ("gpu", "GPU-aaaa"), ("kind", "device")))
    ]


def test_series_and_sample_labels_together_stay_below_thirty() -> None:
    (push,) = made({site("load"): (1, 10, 1, 10)}, cluster="c1")
    sample_labels = {name for sample in decode(push.pprof, name="x").samples for name, _ in sample.labels}
    assert len({name for name, _ in push.labels} | sample_labels) < 30
    assert "thread" not in sample_labels, "each thread would be a series"


def test_threads_of_one_process_are_one_sample() -> None:
    (push,) = made({site("load", thread_id=t): (1, 10, 1, 10) for t in range(5)})
    assert [sample.values for sample in decode(push.pprof, name="x").samples] == [(5, 50, 5, 50)]


def test_a_process_before_and_after_exec_is_one_push() -> None:
    after = Process(pid=PYTHON.pid, start_ns=PYTHON.start_ns, name=PYTHON.name, generation=1)
    (push,) = made({site("load"): (1, 10, 0, 0), site("load", process=after): (2, 20, 2, 20)})
    assert [sample.values for sample in decode(push.pprof, name="x").samples] == [(3, 30, 2, 20)]


def test_a_process_without_values_is_not_pushed() -> None:
    assert made({site("load"): (0, 0, 0, 0)}) == []


def test_a_large_profile_goes_in_parts_that_are_series_of_their_own() -> None:
    values = {
        Site(process=PYTHON, thread_id=1, stack=(Frame(function=f"{number:0900}"),)): (1, 10, 1, 10)
        for number in range(5000)
    }
    parts = made(values)
    assert [dict(push.labels).get("part") for push in parts] == [
        None,
        *(str(n) for n in range(2, len(parts) + 1)),
    ]
    profiles = [decode(push.pprof, name="x") for push in parts]
    assert all(len(encode(profile)) < 2 * 1024 * 1024 for profile in profiles)
    assert sum(sample.values[3] for profile in profiles for sample in profile.samples) == 50_000


def test_what_is_pushed_is_without_the_interpreter_unless_all_is_asked_for() -> None:
    call = Frame(function="_PyObject_Call", file="/usr/bin/python3.12", kind=FrameKind.NATIVE)
    one = replace(site("load"), stack=(call, *site("load").stack))
    depths = {}
    for detail in (Detail.PLAIN, Detail.ALL):
        (push,) = pushes(
            {one: (1, 10, 1, 10)}, node="n1", cluster="", time_unix_ns=MOMENT, duration_ns=1, detail=detail
        )
        (sample,) = decode(push.pprof, name="x").samples
        depths[detail] = [frame.function for frame in sample.stack]
    assert depths == {Detail.PLAIN: ["load"], Detail.ALL: ["_PyObject_Call", "load"]}
