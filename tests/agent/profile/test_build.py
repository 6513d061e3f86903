# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuheap.heap.model import Frame, Process
from gpuheap.profile.build import build, loss_notes
from gpuheap.profile.model import FILE_LABELS, PUSH_SAMPLE_LABELS
from tests.agent.heap.values import PYTHON, totals
from tests.agent.profile.examples import MODULE, at, of


def test_a_sample_in_a_file_says_process_pid_thread_and_kind() -> None:
    (sample,) = of({at(MODULE, thread_id=9): totals(10)}).samples
    assert dict(sample.labels) == {"pid": "4711", "process": "python", "thread": "9", "kind": "device"}


def test_a_push_merges_threads() -> None:
    site_values = {at(MODULE, thread_id=thread): (1, 10, 1, 10) for thread in (1, 2, 3)}
    profile = build(site_values, label_names=PUSH_SAMPLE_LABELS, time_unix_ns=0, duration_ns=0)
    assert [(sample.values, sample.labels) for sample in profile.samples] == [
        ((3, 30, 3, 30), (("kind", "device"),))
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


def test_only_losses_that_occurred_are_noted() -> None:
    assert loss_notes({"ring_full": 0, "stacks_full": 1, "fault": 1200}) == (
        "lost or blurred: fault, 1,200 times",
        "lost or blurred: stacks_full, 1 time",
    )
