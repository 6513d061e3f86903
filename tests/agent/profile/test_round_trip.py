# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.profile.decode import decode
from gpuheap.profile.encode import encode, encode_gzip
from gpuheap.profile.model import Profile, Sample
from gpuheap.profile.schema import PprofProfile
from tests.agent.profile.examples import example

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_frames = st.builds(
    Frame,
    function=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    file=_text,
    line=st.integers(0, 2**31),
    kind=st.sampled_from(FrameKind),
)
_samples = st.builds(
    Sample,
    stack=st.lists(_frames, max_size=8).map(tuple),
    values=st.tuples(*[st.integers(0, 2**62)] * 4),
    labels=st.dictionaries(
        _text, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
    ).map(lambda labels: tuple(sorted(labels.items()))),
)
_profiles = st.builds(
    Profile,
    samples=st.lists(_samples, max_size=6).map(tuple),
    time_unix_ns=st.integers(0, 2**62),
    duration_ns=st.integers(0, 2**62),
    notes=st.lists(_text, max_size=3).map(tuple),
)


@given(profile=_profiles)
def test_what_is_written_is_read_back(profile: Profile) -> None:
    assert decode(encode_gzip(profile), name="x") == profile
    assert decode(encode(profile), name="x") == profile


def test_a_native_function_keeps_its_source_and_its_library() -> None:
    frame = Frame(
        function="ask",
        file="/src/ask.c",
        line=12,
        kind=FrameKind.NATIVE,
        library="/usr/lib/libask.so",
        build_id="00ff",
    )
    written = encode(
        Profile(samples=(Sample(stack=(frame,), values=(1, 1, 1, 1)),), time_unix_ns=1, duration_ns=1)
    )
    message = PprofProfile.FromString(written)
    (location,), (function,), (mapping,) = message.location, message.function, message.mapping
    strings = message.string_table
    assert (strings[function.filename], location.line[0].line) == ("/src/ask.c", 12)
    assert (strings[mapping.filename], strings[mapping.build_id]) == ("/usr/lib/libask.so", "00ff")
    (found,) = decode(written, name="x").samples[0].stack
    assert (found, found.build_id) == (frame, "00ff")


def test_equal_profiles_are_equal_files() -> None:
    assert encode_gzip(example()) == encode_gzip(example())


def test_a_name_that_is_not_unicode_text_is_written_with_replacements() -> None:
    profile = Profile(
        samples=(Sample(stack=(Frame(function="f\udcff"),), values=(1, 1, 1, 1)),),
        time_unix_ns=1,
        duration_ns=1,
    )
    assert decode(encode(profile), name="x").samples[0].stack[0].function == "f?"
