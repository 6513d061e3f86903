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
from gpuheap.heap.quantities import count_text
from gpuheap.heap.samples import SiteValues
from gpuheap.profile.model import KIND, PID, PROCESS, THREAD, Profile, Sample

UNNAMED: Final = "<unnamed>"

_LABELS: Final[Mapping[str, Callable[[Site], str]]] = {
    PID: lambda site: str(site.process.pid),
    PROCESS: lambda site: site.process.name,
    THREAD: lambda site: str(site.thread_id),
    KIND: lambda site: site.kind.value,
}


def build(
    site_values: SiteValues,
    *,
    label_names: Sequence[str],
    time_unix_ns: int,
    duration_ns: int,
    notes: Iterable[str] = (),
) -> Profile:
    """Sites that differ in nothing that is shown (stack and the labels named) become one sample.

    `label_names` are of `model.FILE_LABELS`; another name raises KeyError.
    """
    merged: dict[tuple[tuple[Frame, ...], tuple[tuple[str, str], ...]], tuple[int, ...]] = {}
    for site, values in site_values.items():
        key = (_named(site.stack), tuple(sorted((name, _LABELS[name](site)) for name in label_names)))
        known = merged.get(key)
        merged[key] = tuple(map(add, known, values)) if known is not None else values
    samples = tuple(
        Sample(stack=stack, labels=labels, values=values)
        for (stack, labels), values in merged.items()
        if any(values)
    )
    return Profile(samples=samples, time_unix_ns=time_unix_ns, duration_ns=duration_ns, notes=tuple(notes))


def loss_notes(losses: Mapping[str, int]) -> tuple[str, ...]:
    """One sentence for each reason for which something was lost or blurred; none when nothing was."""
    return tuple(
        f"lost or blurred: {reason}, {count_text(n, 'time')}" for reason, n in sorted(losses.items()) if n
    )


def _named(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    if not stack:
        return (NO_STACK,)
    if all(frame.function for frame in stack):
        return stack
    return tuple(frame if frame.function else replace(frame, function=UNNAMED) for frame in stack)
