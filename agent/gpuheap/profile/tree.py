# SPDX-License-Identifier: Apache-2.0
"""What the page draws, as plain JSON values: trees of stacks and tables of functions, of each process's memory.

Pure. Trees are flat lists in which a parent comes before its children: a stack may be deeper than JSON writers nest.
Values of different memory kinds are never added up: `views` says what is. There is a tree and a table for each way to
show stacks that makes a difference to this profile.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from gpuheap.heap.functions import NO_STACK, by_function
from gpuheap.heap.model import Frame
from gpuheap.profile.model import Profile, Sample
from gpuheap.profile.views import Key, in_order, key_of, views
from gpuheap.stacks.display import Detail, shown

NO_PARENT: Final = -1


def page_data(profile: Profile) -> dict[str, Any]:
    """Frames, one group for each process, memory kind and device, and the views among which a reader chooses.

    A view names its process and memory, and has parts, [group, name], which are drawn side by side. A node is [parent,
    frame, line, value of each sample type]; a function is [frame, line, self values, total values], where line is the
    heaviest one by the default sample type. Of both there is a list for each of the `details`.
    """
    frames = _Frames()
    default = [entry.name for entry in profile.sample_types].index(profile.default_sample_type)
    details = _details(profile)
    groups: dict[Key, list[int]] = {}
    for number, sample in enumerate(profile.samples):
        groups.setdefault(key_of(sample), []).append(number)
    totals = {key: _totals(profile.samples[number] for number in group) for key, group in groups.items()}
    ordered = in_order(totals, default)
    chosen = [
        {
            "process": view.process,
            "memory": view.memory,
            "parts": [[ordered.index(key), name] for key, name in view.parts.items()],
            "functions": [
                _functions((samples[number] for key in view.parts for number in groups[key]), frames, default)
                for samples in details.values()
            ],
        }
        for view in views(ordered)
    ]
    return {
        "types": [{"name": entry.name, "unit": entry.unit} for entry in profile.sample_types],
        "defaultType": default,
        "details": list(details),
        "groups": [
            {
                "gpu": key.gpu,
                "nodes": [
                    _nodes((samples[number] for number in groups[key]), frames)
                    for samples in details.values()
                ],
            }
            for key in ordered
        ],
        "views": chosen,
        "frames": frames.table,
    }


def _details(profile: Profile) -> dict[str, list[Sample]]:
    """The samples at each detail, what is shown first at first; one that shows what another does is left out."""
    found: dict[str, list[Sample]] = {}
    for detail in (Detail.PLAIN, Detail.FOLDED, Detail.ALL):
        samples = [replace(sample, stack=shown(sample.stack, detail)) for sample in profile.samples]
        if samples not in found.values():
            found[detail.value] = samples
    return found


class _Frames:
    """Gives each (function, file, kind, library) a number. The library is empty where the file says it."""

    def __init__(self) -> None:
        self.table: list[tuple[str, str, str, str]] = []
        self._numbers: dict[tuple[str, str, str, str], int] = {}

    def number(self, function: str, file: str, kind: str, library: str = "") -> int:
        key = (function, file, kind, library)
        if key not in self._numbers:
            self._numbers[key] = len(self.table)
            self.table.append(key)
        return self._numbers[key]


def _totals(samples: Iterable[Sample]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(sample.values for sample in samples), strict=True)))


def _nodes(samples: Iterable[Sample], frames: _Frames) -> list[list[int]]:
    children: dict[tuple[int, Frame], int] = {}
    nodes: list[list[int]] = []
    for sample in samples:
        parent = NO_PARENT
        for frame in sample.stack or (NO_STACK,):
            number = children.get((parent, frame))
            if number is None:
                number = children[parent, frame] = len(nodes)
                identifier = frames.number(frame.function, frame.file, frame.kind.value, frame.library)
                nodes.append([parent, identifier, frame.line, *(0 for _ in sample.values)])
            for measure, value in enumerate(sample.values):
                nodes[number][3 + measure] += value
            parent = number
    return nodes


def _functions(samples: Iterable[Sample], frames: _Frames, default: int) -> list[list[Any]]:
    rows = by_function((sample.stack, sample.values) for sample in samples)
    return [
        [
            frames.number(row.function, row.file, row.kind.value, row.library),
            row.heaviest_line(default),
            row.own,
            row.total,
        ]
        for row in rows
    ]
