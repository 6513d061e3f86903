# SPDX-License-Identifier: Apache-2.0
"""Reads pprof, from this agent or from any other tool.

A file is not trusted: its size is bounded before and while it is unpacked, every reference in it is checked, and what
is wrong is said in one sentence with the file's name.
"""

import zlib
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.profile.model import Profile, ProfileError, Sample, SampleType
from gpuheap.profile.schema import PprofProfile

MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024
MAX_STACK_DEPTH: Final = 4096
MAX_FRAMES: Final = 5_000_000
"""Frames of all samples together; samples may share locations, so a small file can name very many."""

_GZIP_MAGIC: Final = b"\x1f\x8b"


def decode(data: bytes, *, name: str, max_bytes: int = MAX_UNPACKED_BYTES) -> Profile:
    """The profile in `data`, plain or gzip. Raises `ProfileError`, whose text begins with `name`."""
    try:
        return _Decoder(_parse(_unpack(data, max_bytes))).profile()
    except ProfileError as error:
        raise ProfileError(f"{name}: {error}") from error.__cause__


def _unpack(data: bytes, max_bytes: int) -> bytes:
    if not data:
        raise ProfileError("the file is empty")
    if not data.startswith(_GZIP_MAGIC):
        if len(data) > max_bytes:
            raise ProfileError(f"{len(data):,} bytes; a profile may have {max_bytes:,}")
        return data
    unpacked = bytearray()
    while data:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            unpacked += member.decompress(data, max_bytes + 1 - len(unpacked))
        except zlib.error as error:
            raise ProfileError(f"damaged gzip data ({error})") from error
        if len(unpacked) > max_bytes:
            raise ProfileError(f"unpacks to more than the {max_bytes:,} bytes that a profile may have")
        if not member.eof:
            raise ProfileError("the gzip data ends too early: the file is cut")
        data = member.unused_data
    return bytes(unpacked)


def _parse(data: bytes) -> Any:
    message = PprofProfile()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProfileError(
            "not a pprof profile: its bytes are not the protobuf message that pprof files hold"
        ) from error
    if not message.sample_type:
        raise ProfileError("not a pprof profile, or one without sample types")
    return message


class _Decoder:
    """Resolves the references of one message."""

    def __init__(self, message: Any) -> None:
        self._message = message
        self._strings: list[str] = list(message.string_table)
        self._mappings = {
            mapping.id: (self._string(mapping.filename), self._string(mapping.build_id))
            for mapping in message.mapping
        }
        self._functions = {function.id: function for function in message.function}
        self._locations = {location.id: self._frames(location) for location in message.location}

    def profile(self) -> Profile:
        message = self._message
        types = tuple(self._sample_type(entry) for entry in message.sample_type)
        names = [entry.name for entry in types]
        default = self._string(message.default_sample_type)
        return Profile(
            samples=self._samples(len(types)),
            time_unix_ns=message.time_nanos,
            duration_ns=message.duration_nanos,
            notes=tuple(self._string(index) for index in message.comment),
            sample_types=types,
            period_type=self._sample_type(message.period_type),
            default_sample_type=default if default in names else names[-1],
        )

    def _sample_type(self, entry: Any) -> SampleType:
        return SampleType(name=self._string(entry.type), unit=self._string(entry.unit))

    def _string(self, index: int) -> str:
        if index == 0 and not self._strings:
            return ""
        if not 0 <= index < len(self._strings):
            raise ProfileError(f"names string {index}; its string table has {len(self._strings)}")
        return self._strings[index]

    def _frames(self, location: Any) -> tuple[Frame, ...]:
        """The functions of a location, from caller to callee: more than one where calls were inlined."""
        mapping, build_id = self._mappings.get(location.mapping_id, ("", ""))
        if not location.line:
            offset = f"{location.address:#x}"
            name = f"{mapping.rsplit('/', 1)[-1]}+{offset}" if mapping else offset
            return (Frame(function=name, file=mapping, kind=FrameKind.NATIVE, build_id=build_id),)
        kind = next((kind for kind in FrameKind if mapping == f"[{kind.value}]"), FrameKind.NATIVE)
        frames = (self._frame(line, location.id) for line in reversed(location.line))
        return tuple(
            replace(frame, kind=kind, build_id=build_id, library=_library(frame, kind, mapping))
            for frame in frames
        )

    def _frame(self, line: Any, location: int) -> Frame:
        function = self._functions.get(line.function_id)
        if function is None:
            raise ProfileError(
                f"location {location} names function {line.function_id}, which it does not have"
            )
        name = self._string(function.name) or self._string(function.system_name) or "<unnamed>"
        return Frame(function=name, file=self._string(function.filename), line=max(line.line, 0))

    def _samples(self, types: int) -> tuple[Sample, ...]:
        frames = 0
        samples = []
        for number, entry in enumerate(self._message.sample):
            sample = self._sample(entry, types, number)
            frames += len(sample.stack)
            if frames > MAX_FRAMES:
                raise ProfileError(f"its stacks have more than {MAX_FRAMES:,} frames together")
            samples.append(sample)
        return tuple(samples)

    def _sample(self, entry: Any, types: int, number: int) -> Sample:
        values = tuple(entry.value)
        if len(values) != types:
            raise ProfileError(f"sample {number} has {len(values)} values for {types} sample types")
        if min(values) < 0:
            raise ProfileError(f"sample {number} is negative; the difference of two profiles cannot be shown")
        stack: list[Frame] = []
        for identifier in reversed(entry.location_id):
            if identifier not in self._locations:
                raise ProfileError(
                    f"sample {number} names location {identifier}, which the file does not have"
                )
            stack.extend(self._locations[identifier])
            if len(stack) > MAX_STACK_DEPTH:
                raise ProfileError(f"sample {number} has a stack of more than {MAX_STACK_DEPTH:,} frames")
        labels = sorted((self._string(label.key), self._label_value(label)) for label in entry.label)
        return Sample(stack=tuple(stack), values=values, labels=tuple(labels))

    def _label_value(self, label: Any) -> str:
        if label.str:
            return self._string(label.str)
        unit = self._string(label.num_unit)
        return f"{label.num} {unit}" if unit else str(label.num)


def _library(frame: Frame, kind: FrameKind, mapping: str) -> str:
    """The file that a native function's code is in, where it is not what stands for its source."""
    is_of_file = kind is FrameKind.NATIVE and not mapping.startswith("[")
    return mapping if is_of_file and mapping != frame.file else ""
