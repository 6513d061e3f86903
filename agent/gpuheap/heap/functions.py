# SPDX-License-Identifier: Apache-2.0
"""Self and total by function: a table from weighted stacks.

Pure. *Self* is what a function's own line asked the driver for; *total* adds what the functions that it called asked
for. A function that is on a stack several times (recursion) counts once in the total.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Final

from gpuheap.heap.model import Frame, FrameKind

NO_STACK: Final = Frame(function="<no stack>", kind=FrameKind.UNKNOWN)
"""Stands for a stack without frames, so that its bytes stay visible."""

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """One function. `own` and `total` have one number for each measure of the weighted stacks.

    `library` is that of a native function whose source is known, the first one where several have the function.
    `lines` are the lines that were being executed, with the total of each.
    """

    function: str
    file: str
    kind: FrameKind
    library: str = ""
    own: Values
    total: Values
    lines: Mapping[int, Values]

    def heaviest_line(self, measure: int) -> int:
        """The line with the largest total, 0 when no line is known."""
        return max(self.lines, key=lambda line: (self.lines[line][measure], -line), default=0)


def by_function(stacks: Iterable[tuple[Sequence[Frame], Values]]) -> list[FunctionRow]:
    """One row for each function (name, file), in the order of first sight. Stacks go from the root to the leaf."""
    own: dict[tuple[str, str], Values] = {}
    totals: dict[tuple[str, str], Values] = {}
    first: dict[tuple[str, str], Frame] = {}
    lines: dict[tuple[str, str], dict[int, Values]] = {}
    for frames, values in stacks:
        stack = frames or (NO_STACK,)
        for key, frame in {(frame.function, frame.file): frame for frame in stack}.items():
            first.setdefault(key, frame)
            totals[key] = _sum(totals.get(key), values)
        for function, file, line in dict.fromkeys(
            (frame.function, frame.file, frame.line) for frame in stack
        ):
            known = lines.setdefault((function, file), {})
            known[line] = _sum(known.get(line), values)
        leaf = (stack[-1].function, stack[-1].file)
        own[leaf] = _sum(own.get(leaf), values)
    return [
        FunctionRow(
            function=key[0],
            file=key[1],
            kind=first[key].kind,
            library=first[key].library,
            own=own.get(key, (0,) * len(row)),
            total=row,
            lines=lines[key],
        )
        for key, row in totals.items()
    ]


def heaviest(rows: Iterable[FunctionRow], measure: int, limit: int) -> list[FunctionRow]:
    """The rows that have something of the measure, most self first, then most total, then by name."""
    some = [row for row in rows if row.total[measure]]
    return sorted(some, key=lambda row: (-row.own[measure], -row.total[measure], row.function, row.file))[
        :limit
    ]


def _sum(left: Values | None, right: Values) -> Values:
    return tuple(map(add, left, right)) if left is not None else tuple(right)
