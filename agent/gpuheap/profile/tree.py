# SPDX-License-Identifier: Apache-2.0
"""What the page draws, as plain JSON values: for each process the tree of its stacks and the table of its functions.

Pure. Trees are flat lists in which a parent comes before its children: a stack may be deeper than JSON writers nest.
Values of different memory kinds are never added up: each kind has its own views.
"""

from collections.abc import Iterable
from typing import Any, Final

from gpuheap.heap.functions import NO_STACK, by_function
from gpuheap.heap.model import Frame
from gpuheap.profile.model import KIND, PID, PROCESS, Profile, Sample

_Key = tuple[str, str, str]

NO_PARENT: Final = -1


def page_data(profile: Profile) -> dict[str, Any]:
    """Frames, one group for each (process, memory kind), and the views among which a reader chooses.

    A node is [parent, frame, line, value of each sample type]; a function is [frame, line, self values, total values],
    where line is the heaviest one by the default sample type.
    """
    frames = _Frames()
    types = [entry.name for entry in profile.sample_types]
    default = types.index(profile.default_sample_type)
    groups: dict[_Key, list[Sample]] = {}
    for sample in profile.samples:
        groups.setdefault((sample.label(PROCESS), sample.label(PID), sample.label(KIND)), []).append(sample)
    ordered = sorted(groups, key=lambda key: (-_total(groups[key], default), -_total(groups[key], 0), key))
    several_kinds = len({kind for _, _, kind in groups}) > 1
    views = [
        {
            "label": _label(key, several_kinds),
            "groups": [number],
            "functions": _functions(groups[key], frames, default),
        }
        for number, key in enumerate(ordered)
    ]
    for kind in sorted({kind for _, _, kind in groups}):
        members = [number for number, key in enumerate(ordered) if key[2] == kind]
        if len(members) > 1:
            samples = [sample for number in members for sample in groups[ordered[number]]]
            label = f"all processes ({kind})" if several_kinds else "all processes"
            views.append(
                {"label": label, "groups": members, "functions": _functions(samples, frames, default)}
            )
    return {
        "types": [{"name": entry.name, "unit": entry.unit} for entry in profile.sample_types],
        "defaultType": default,
        "groups": [
            {"label": _label(key, several_kinds), "nodes": _nodes(groups[key], frames)} for key in ordered
        ],
        "views": views,
        "frames": frames.table,
    }


class _Frames:
    """Gives each (function, file, kind) a number."""

    def __init__(self) -> None:
        self.table: list[tuple[str, str, str]] = []
        self._numbers: dict[tuple[str, str, str], int] = {}

    def number(self, function: str, file: str, kind: str) -> int:
        key = (function, file, kind)
        if key not in self._numbers:
            self._numbers[key] = len(self.table)
            self.table.append(key)
        return self._numbers[key]


def _total(samples: Iterable[Sample], measure: int) -> int:
    return sum(sample.values[measure] for sample in samples)


def _label(key: _Key, with_kind: bool) -> str:
    process, pid, kind = key
    label = (
        f"{process} (pid {pid})" if process and pid else process or (f"pid {pid}" if pid else "all samples")
    )
    return f"{label}, {kind}" if with_kind and kind else label


def _nodes(samples: Iterable[Sample], frames: _Frames) -> list[list[int]]:
    children: dict[tuple[int, Frame], int] = {}
    nodes: list[list[int]] = []
    for sample in samples:
        parent = NO_PARENT
        for frame in sample.stack or (NO_STACK,):
            number = children.get((parent, frame))
            if number is None:
                number = children[parent, frame] = len(nodes)
                identifier = frames.number(frame.function, frame.file, frame.kind.value)
                nodes.append([parent, identifier, frame.line, *(0 for _ in sample.values)])
            for measure, value in enumerate(sample.values):
                nodes[number][3 + measure] += value
            parent = number
    return nodes


def _functions(samples: Iterable[Sample], frames: _Frames, default: int) -> list[list[Any]]:
    rows = by_function((sample.stack, sample.values) for sample in samples)
    return [
        [
            frames.number(row.function, row.file, row.kind.value),
            row.heaviest_line(default),
            row.own,
            row.total,
        ]
        for row in rows
    ]
