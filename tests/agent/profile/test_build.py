# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from gpuheap.heap.model import UNKNOWN_DEVICE, Frame, MemoryKind, Process
from gpuheap.profile.build import build
from gpuheap.profile.model import FILE_LABELS, PUSH_SAMPLE_LABELS
from tests.agent.heap.values import GPU_1, PYTHON, totals
from tests.agent.profile.examples import MODULE, at, of


def test_a_sample_in_a_file_says_whose_where_what_and_by_which_call() -> None:
    one = replace(at(MODULE, thread_id=9), device=GPU_1, call="cuMemAllocAsync")
    (sample,) = of({one: totals(10)}).samples
    assert dict(sample.labels) == {
        "pid": "4711",
        "process": "python",
        "thread": "9",
        "kind": "device",
        "device": "1",
        "gpu": "GPU-bbbb",
        "call": "cuMemAllocAsync",
    }


def test_a_label_without_a_value_is_left_out() -> None:
    (sample,) = of({at(MODULE, device=UNKNOWN_DEVICE): totals(10)}).samples
    assert dict(sample.labels) == {
        "pid": "4711",
        "process": "python",
        "thread": "1",
        "kind": "device",
        "device": "unknown",
    }


def test_kinds_and_devices_of_equal_stacks_stay_apart() -> None:
    sites = [at(MODULE), at(MODULE, device=GPU_1), at(MODULE, kind=MemoryKind.MANAGED)]
    profile = of({one: totals(10 * weight) for weight, one in enumerate(sites, start=1)})
    assert sorted(sample.values[3] for sample in profile.samples) == [10, 20, 30]


def test_a_push_merges_threads() -> None:
    site_values = {at(MODULE, thread_id=thread): (1, 10, 1, 10) for thread in (1, 2, 3)}
    profile = build(site_values, label_names=PUSH_SAMPLE_LABELS, time_unix_ns=0, duration_ns=0)
    assert [(sample.values, sample.labels) for sample in profile.samples] == [
        ((3, 30, 3, 30), (("device", "0"), ("gpu", "GPU-aaaa"), ("kind", "device")))
    ]


def test_a_file_keeps_equal_stacks_of_two_processes_apart() -> None:
    twin = Process(pid=99, start_ns=1, name=PYTHON.name)
    profile = of({at(MODULE): totals(10), at(MODULE, process=twin): totals(20)})
    assert sorted(sample.values[3] for sample in profile.samples) == [10, 20]


def test_a_frame_without_a_name_gets_one() -> None:
    profile = of({at(Frame(function="", file="x.py", line=3)): totals(10), at(): totals(20)})
    assert [sample.stack[0].function for sample in profile.samples] == ["<unnamed>", "<no stack>"], (
        "viewers hide frames without a name, and bytes would be gone"
    )


def test_an_all_zero_profile_has_no_samples() -> None:
    assert (
        build({at(MODULE): (0, 0, 0, 0)}, label_names=FILE_LABELS, time_unix_ns=0, duration_ns=0).samples
        == ()
    )


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(KeyError):
        build({at(MODULE): (1, 1, 1, 1)}, label_names=["user"], time_unix_ns=0, duration_ns=0)
