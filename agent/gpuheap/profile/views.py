# SPDX-License-Identifier: Apache-2.0
"""Among what the reader of the page chooses: processes, and for each its memory by kind and device.

Pure. A view adds up several groups only when they are of one kind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpuheap.heap.words import device_text, kind_rank, kind_text, memory_text
from gpuheap.profile.model import DEVICE, GPU, KIND, PID, PROCESS, Sample

ALL_PROCESSES: Final = "all processes"
NOT_LABELLED: Final = "memory of no known kind"


class Key(NamedTuple):
    """What the samples of one group have in common: the text of their labels, empty where they have none."""

    process: str
    pid: str
    kind: str
    device: str
    gpu: str

    @property
    def owner(self) -> str:
        if self.process and self.pid:
            return f"{self.process} (pid {self.pid})"
        return self.process or (f"pid {self.pid}" if self.pid else "all samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown together: groups by their keys, each with the name of its part of the picture."""

    process: str
    memory: str
    parts: Mapping[Key, str]


def key_of(sample: Sample) -> Key:
    return Key(*(sample.label(name) for name in (PROCESS, PID, KIND, DEVICE, GPU)))


def in_order(totals: Mapping[Key, tuple[int, ...]], default: int) -> list[Key]:
    """The groups that a reader wants first: with something to show, device memory, then by size."""

    def rank(key: Key) -> tuple[object, ...]:
        values = totals[key]
        return not values[default], kind_rank(key.kind), -values[default], -values[0], key

    return sorted(totals, key=rank)


def views(keys: Iterable[Key]) -> list[View]:
    """Of each process its memory by kind and device; then all processes together by kind. Keeps the order of `keys`."""
    ordered = list(keys)
    owners = _by(ordered, _owner)
    result = [view for members in owners for view in _of_process(members)]
    if len(owners) > 1:
        for members in sorted(_by(ordered, _kind), key=lambda some: kind_rank(some[0].kind)):
            result += _of_all_processes(members)
    if any(key.kind for key in ordered):
        result = [view if view.memory else replace(view, memory=NOT_LABELLED) for view in result]
    return result


def _of_process(members: Sequence[Key]) -> Iterator[View]:
    for same_kind in _by(members, _kind):
        for key in same_kind:
            yield View(process=key.owner, memory=memory_text(key.kind, key.device), parts={key: key.owner})
        if len(same_kind) > 1:
            parts = {key: device_text(key.device) or "host" for key in same_kind}
            yield View(process=same_kind[0].owner, memory=_everywhere(same_kind[0].kind), parts=parts)


def _of_all_processes(members: Sequence[Key]) -> Iterator[View]:
    """Of one kind: wherever it is, and of each GPU that several processes use, where its UUID is known."""
    owners = _by(members, _owner)
    if len(owners) < 2:
        return
    alone = len(owners) == len(members)
    parts = {
        key: key.owner if alone else f"{key.owner}, {device_text(key.device) or 'host'}" for key in members
    }
    places = {(key.device, key.gpu) for key in members}
    kind, device = members[0].kind, members[0].device
    memory = memory_text(kind, device) if len(places) == 1 else _everywhere(kind)
    yield View(process=ALL_PROCESSES, memory=memory, parts=parts)
    for shared in _by([key for key in members if key.gpu], lambda key: key.gpu):
        if len(_by(shared, _owner)) > 1 and len(shared) < len(members):
            gpu = {key: parts[key] for key in shared}
            yield View(process=ALL_PROCESSES, memory=f"{kind_text(kind)} on {shared[0].gpu}", parts=gpu)


def _everywhere(kind: str) -> str:
    return f"{kind_text(kind) or 'memory'} on all GPUs"


def _owner(key: Key) -> tuple[str, str]:
    return key.process, key.pid


def _kind(key: Key) -> str:
    return key.kind


def _by(keys: Iterable[Key], of: Callable[[Key], object]) -> list[list[Key]]:
    """The keys in groups, groups and members in the order of first sight."""
    groups: dict[object, list[Key]] = {}
    for key in keys:
        groups.setdefault(of(key), []).append(key)
    return list(groups.values())
