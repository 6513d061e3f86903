# SPDX-License-Identifier: Apache-2.0
"""Writes a profile as pprof.

A native frame's mapping is the file that its code is of, with the build id; of other frames it is their kind, in
brackets: pprof tools do not look for symbols of such a mapping, and Python frames can be told from native ones in them.
"""

import gzip
from collections.abc import Sequence
from typing import Any

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.profile.model import Profile
from gpuheap.profile.schema import PprofProfile


def encode(profile: Profile) -> bytes:
    """The uncompressed pprof message."""
    return bytes(_Encoder(profile).message.SerializeToString(deterministic=True))


def encode_gzip(profile: Profile) -> bytes:
    """The message of a profile, compressed."""
    return compress(encode(profile))


def compress(message: bytes) -> bytes:
    """A message as files and pushes carry it; equal ones give equal bytes."""
    return gzip.compress(message, mtime=0)


class _Encoder:
    """Interns strings, functions and locations of one message."""

    def __init__(self, profile: Profile) -> None:
        self.message: Any = PprofProfile()
        self._strings: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[Frame, str], int] = {}
        # By identity, as the stacks of a process share their frames, and hashing one takes longer than all else here.
        self._numbers: dict[int, int] = {}
        self._mappings: dict[tuple[str, str], int] = {}
        self._string("")  # index 0 is the empty string by definition
        self._header(profile)
        if (program := _program(profile)) is not None:
            self._mapping(program)  # by convention the first one
        for sample in profile.samples:
            out = self.message.sample.add()
            out.location_id.extend(self._numbered(sample.stack))
            out.value.extend(sample.values)
            for key, value in sample.labels:
                out.label.add(key=self._string(key), str=self._string(value))

    def _header(self, profile: Profile) -> None:
        message = self.message
        for sample_type in profile.sample_types:
            message.sample_type.add(type=self._string(sample_type.name), unit=self._string(sample_type.unit))
        message.period_type.type = self._string(profile.period_type.name)
        message.period_type.unit = self._string(profile.period_type.unit)
        message.period = 1  # nothing is sampled: every byte counts
        message.time_nanos = profile.time_unix_ns
        message.duration_nanos = profile.duration_ns
        message.default_sample_type = self._string(profile.default_sample_type)
        message.comment.extend(self._string(note) for note in profile.notes)

    def _string(self, text: str) -> int:
        index = self._strings.get(text)
        if index is None:
            index = self._strings[text] = len(self._strings)
            # A name read from a process may hold what is not Unicode text; protobuf would refuse it.
            self.message.string_table.append(text.encode(errors="replace").decode())
        return index

    def _mapping(self, frame: Frame) -> int:
        key = (frame.code_file, frame.build_id) if _is_of_file(frame) else (f"[{frame.kind.value}]", "")
        number = self._mappings.get(key)
        if number is None:
            number = self._mappings[key] = len(self._mappings) + 1
            self.message.mapping.add(
                id=number,
                filename=self._string(key[0]),
                build_id=self._string(key[1]),
                has_functions=True,
                has_filenames=True,
                has_line_numbers=True,
            )
        return number

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file)
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions) + 1
            # No system name: pprof takes a name that equals it for a mangled one, and cuts `<module>` out of it.
            self.message.function.add(
                id=number, name=self._string(frame.function), filename=self._string(frame.file)
            )
        return number

    def _numbered(self, stack: Sequence[Frame]) -> list[int]:
        """The locations of a stack, innermost first."""
        numbers = self._numbers
        for frame in reversed(stack):
            if id(frame) not in numbers:
                numbers[id(frame)] = self._location(frame)
        return [numbers[id(frame)] for frame in reversed(stack)]

    def _location(self, frame: Frame) -> int:
        key = (frame, frame.build_id)
        number = self._locations.get(key)
        if number is None:
            number = self._locations[key] = len(self._locations) + 1
            location = self.message.location.add(id=number, mapping_id=self._mapping(frame))
            location.line.add(function_id=self._function(frame), line=frame.line)
        return number


def _is_of_file(frame: Frame) -> bool:
    return frame.kind is FrameKind.NATIVE and bool(frame.code_file) and not frame.code_file.startswith("[")


def _program(profile: Profile) -> Frame | None:
    """A function of what looks like a program: the outermost one that is in no library."""
    frames = (frame for sample in profile.samples for frame in sample.stack if _is_of_file(frame))
    return next((frame for frame in frames if ".so" not in frame.code_file.rpartition("/")[2]), None)
