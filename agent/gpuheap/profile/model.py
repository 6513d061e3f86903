# SPDX-License-Identifier: Apache-2.0
"""A profile as a value: weighted stacks with labels, whatever file format it comes from or goes to."""

from dataclasses import dataclass
from typing import Final

from gpuheap import contract
from gpuheap.heap.model import Frame

PID: Final = "pid"
PROCESS: Final = "process"
THREAD: Final = "thread"
KIND: Final = contract.KIND_LABEL
DEVICE: Final = contract.DEVICE_LABEL
GPU: Final = contract.GPU_LABEL
CALL: Final = "call"
"""The driver function that was called."""

FILE_LABELS: Final = (PID, PROCESS, THREAD, KIND, DEVICE, GPU, CALL)
"""Labels of each sample in a file."""

PUSH_SAMPLE_LABELS: Final = (KIND, DEVICE, GPU)
"""Labels of each sample in a push: those of its series, so that the profile says by itself what its bytes are.
Pyroscope makes a series of each combination of string labels: a thread id there would multiply the series without end,
and a call without need."""


class ProfileError(Exception):
    """A profile that cannot be read or shown. The text names the file and the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleType:
    name: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One stack, from the root to the leaf, with a value for each sample type and sorted (name, value) labels."""

    stack: tuple[Frame, ...]
    values: tuple[int, ...]
    labels: tuple[tuple[str, str], ...] = ()

    def label(self, name: str) -> str:
        """The label's value, empty when the sample does not have it."""
        return next((value for key, value in self.labels if key == name), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`notes` are sentences for the reader: what was lost, what the numbers do not cover."""

    samples: tuple[Sample, ...]
    time_unix_ns: int
    duration_ns: int
    notes: tuple[str, ...] = ()
    sample_types: tuple[SampleType, ...] = tuple(
        SampleType(name=name, unit=unit) for name, unit in contract.SAMPLE_TYPES
    )
    period_type: SampleType = SampleType(name=contract.PERIOD_TYPE[0], unit=contract.PERIOD_TYPE[1])
    default_sample_type: str = "inuse_space"
