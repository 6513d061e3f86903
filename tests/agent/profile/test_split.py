# SPDX-License-Identifier: Apache-2.0
from gpuheap.heap.model import Frame
from gpuheap.profile.encode import encode
from gpuheap.profile.model import Profile, Sample
from gpuheap.profile.split import split
from tests.agent.profile.examples import example


def wide(samples: int, name_length: int = 1) -> Profile:
    return Profile(
        samples=tuple(
            Sample(stack=(Frame(function=f"{number:0{name_length}}"),), values=(1, 1, 1, 1))
            for number in range(samples)
        ),
        time_unix_ns=7,
        duration_ns=8,
    )


def test_a_small_profile_stays_whole() -> None:
    assert split(example()) == [example()]


def test_a_profile_without_samples_is_not_sent() -> None:
    assert split(Profile(samples=(), time_unix_ns=1, duration_ns=1)) == []


def test_parts_have_at_most_sixteen_thousand_samples() -> None:
    parts = split(wide(40_000))
    assert all(len(part.samples) <= 16_000 for part in parts)
    assert [sample for part in parts for sample in part.samples] == list(wide(40_000).samples)


def test_parts_have_less_than_two_mebibytes() -> None:
    parts = split(wide(5_000, name_length=1000))
    assert len(parts) > 1
    assert all(len(encode(part)) < 2 * 1024 * 1024 for part in parts)
    assert [sample for part in parts for sample in part.samples] == list(
        wide(5_000, name_length=1000).samples
    )
    assert {(part.time_unix_ns, part.duration_ns) for part in parts} == {(7, 8)}


def test_one_sample_that_is_too_large_by_itself_stays() -> None:
    huge = wide(1, name_length=3 * 1024 * 1024)
    assert split(huge) == [huge], "the server's refusal is counted, and nothing loops"
