# SPDX-License-Identifier: Apache-2.0
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.profile.decode import decode
from gpuheap.profile.encode import encode, encode_gzip
from gpuheap.profile.files import read_profile
from gpuheap.profile.model import Profile, ProfileError
from gpuheap.profile.schema import PprofProfile
from tests.agent.profile.examples import example

GOOD = encode_gzip(example())


def message() -> Any:
    parsed = PprofProfile()
    parsed.ParseFromString(encode(example()))
    return parsed


def broken(change: Callable[[Any], object]) -> bytes:
    parsed = message()
    change(parsed)
    return bytes(parsed.SerializeToString())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"{}", "not a pprof profile"),
        (b"\x1f\x8b\x08garbage", "damaged gzip data"),
        (GOOD[:-9], "the file is cut"),
        (gzip.compress(b"\xff\xff\xff"), "not a pprof profile"),
        (gzip.compress(b""), "not a pprof profile, or one without sample types"),
        (gzip.compress(bytes(10_000_000)), "unpacks to more than the 1,000,000 bytes"),
        (bytes(1_000_001), "1,000,001 bytes; a profile may have 1,000,000"),
    ],
)
def test_what_is_no_profile_is_refused_with_its_name_and_the_reason(data: bytes, problem: str) -> None:
    with pytest.raises(ProfileError) as caught:
        decode(data, name="some/file.pb.gz", max_bytes=1_000_000)
    assert str(caught.value).startswith("some/file.pb.gz: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda m: m.sample[0].location_id.append(999), "sample 0 names location 999"),
        (lambda m: m.sample[0].value.append(1), "sample 0 has 5 values for 4 sample types"),
        (lambda m: setattr(m.function[0], "name", 10_000), "names string 10000"),
        (lambda m: setattr(m.function[0], "name", -1), "names string -1"),
        (lambda m: setattr(m.location[0].line[0], "function_id", 77), "names function 77"),
        (lambda m: m.sample[1].value.__setitem__(3, -5), "sample 1 is negative"),
        (lambda m: m.sample[0].location_id.extend([1] * 5000), "a stack of more than 4,096 frames"),
        (lambda m: m.sample[0].label.add(key=1, str=5000), "names string 5000"),
        (lambda m: m.comment.append(5000), "names string 5000"),
    ],
)
def test_a_reference_to_nowhere_is_refused(change: Callable[[Any], object], problem: str) -> None:
    with pytest.raises(ProfileError, match=problem):
        decode(broken(change), name="x")


def test_stacks_that_name_too_many_frames_together_are_refused() -> None:
    def multiply(parsed: Any) -> None:
        for _ in range(1500):
            sample = parsed.sample.add()
            sample.location_id.extend([1] * 4000)
            sample.value.extend([1, 1, 1, 1])

    with pytest.raises(ProfileError, match="more than 5,000,000 frames together"):
        decode(broken(multiply), name="x")


@given(data=st.binary(max_size=200), place=st.integers(0, len(GOOD) - 1))
def test_any_bytes_give_a_profile_or_a_clear_error(data: bytes, place: int) -> None:
    plain = encode(example())
    for candidate in (data, GOOD[:place] + data + GOOD[place:], plain[:place] + data + plain[place:]):
        outcome = read_or_refused(candidate)
        assert isinstance(outcome, Profile) or outcome.startswith("x: ")


def read_or_refused(data: bytes) -> Profile | str:
    try:
        return decode(data, name="x")
    except ProfileError as error:
        return str(error)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.pb\.gz: cannot be read: No such file or directory"):
        read_profile(tmp_path / "none.pb.gz")


def test_a_location_without_functions_is_shown_by_its_address() -> None:
    def strip(parsed: Any) -> None:
        location = parsed.location[0]
        del location.line[:]
        location.address = 0x1F0
        parsed.string_table.append("/usr/lib/libfoo.so")
        next(m for m in parsed.mapping if m.id == location.mapping_id).filename = len(parsed.string_table) - 1

    names = {frame.function for s in decode(broken(strip), name="x").samples for frame in s.stack}
    assert "libfoo.so+0x1f0" in names
