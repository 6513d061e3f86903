# SPDX-License-Identifier: Apache-2.0
from gpuheap.heap.model import Frame
from gpuheap.profile.decode import decode
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


def parts_of(profile: Profile) -> list[Profile]:
    return [decode(message, name="part") for message in split(profile)]


def test_a_small_profile_stays_whole() -> None:
    assert parts_of(example()) == [example()]


def test_a_profile_without_samples_is_not_sent() -> None:
    assert split(Profile(samples=(), time_unix_ns=1, duration_ns=1)) == []


def test_parts_have_at_most_sixteen_thousand_samples() -> None:
    parts = parts_of(wide(17_000))
    assert all(len(part.samples) <= 16_000 for part in parts)
    assert [sample for part in parts for sample in part.samples] == list(wide(17_000).samples)


def test_parts_have_less_than_two_mebibytes() -> None:
    messages = split(wide(5_000, name_length=1000))
    assert len(messages) > 1
    assert all(len(message) < 2 * 1024 * 1024 for message in messages)
    parts = [decode(message, name="part") for message in messages]
    assert [sample for part in parts for sample in part.samples] == list(
        wide(5_000, name_length=1000).samples
    )
    assert {(part.time_unix_ns, part.duration_ns) for part in parts} == {(7, 8)}


def test_one_sample_that_is_too_large_by_itself_stays() -> None:
    huge = wide(1, name_length=3 * 1024 * 1024)
    assert parts_of(huge) == [huge], "the server's refusal is counted, and nothing loops"
