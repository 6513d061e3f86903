# SPDX-License-Identifier: Apache-2.0
"""From sites and their values to a profile.

Pure. Makes sure that every frame has a name (viewers hide a frame without one) and that no sample is all zero.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add
from typing import Final

from gpuheap.heap.functions import NO_STACK
from gpuheap.heap.model import Frame, Site
from gpuheap.heap.samples import SiteValues
from gpuheap.profile.model import CALL, DEVICE, GPU, KIND, PID, PROCESS, THREAD, Profile, Sample
from gpuheap.stacks.display import Detail, shown

UNNAMED: Final = "<unnamed>"

_LABELS: Final[Mapping[str, Callable[[Site], str]]] = {
    PID: lambda site: str(site.process.pid),
    PROCESS: lambda site: site.process.name,
    THREAD: lambda site: str(site.thread_id),
    KIND: lambda site: site.kind.value,
    DEVICE: lambda site: site.device.text,
    GPU: lambda site: site.device.uuid,
    CALL: lambda site: site.call,
}


def build(
    site_values: SiteValues,
    *,
    label_names: Sequence[str],
    time_unix_ns: int,
    duration_ns: int,
    notes: Iterable[str] = (),
    detail: Detail = Detail.ALL,
) -> Profile:
    """Sites that differ in nothing that is shown (stack and the labels named) become one sample.

    `label_names` are of `model.FILE_LABELS`; another name raises KeyError. `detail` says which frames stacks keep.
    """
    merged: dict[tuple[tuple[Frame, ...], tuple[tuple[str, str], ...]], tuple[int, ...]] = {}
    for site, values in site_values.items():
        key = (_named(shown(site.stack, detail)), _labels(site, label_names))
        known = merged.get(key)
        merged[key] = tuple(map(add, known, values)) if known is not None else values
    samples = tuple(
        Sample(stack=stack, labels=labels, values=values)
        for (stack, labels), values in merged.items()
        if any(values)
    )
    return Profile(samples=samples, time_unix_ns=time_unix_ns, duration_ns=duration_ns, notes=tuple(notes))


def _labels(site: Site, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Sorted. One without a value is left out: in pprof, an empty text is no text."""
    values = ((name, _LABELS[name](site)) for name in names)
    return tuple(sorted((name, value) for name, value in values if value))


def _named(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    if not stack:
        return (NO_STACK,)
    if all(frame.function for frame in stack):
        return stack
    return tuple(frame if frame.function else replace(frame, function=UNNAMED) for frame in stack)
