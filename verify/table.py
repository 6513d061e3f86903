# SPDX-License-Identifier: Apache-2.0
"""Results for people (a table, with the remedy below each failure) and for programs (JSON)."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .model import Outcome, Result

_MARKS: Final[Mapping[Outcome, tuple[str, str]]] = {
    Outcome.PASSED: ("pass", "green"),
    Outcome.FAILED: ("FAIL", "bold red"),
    Outcome.SKIPPED: ("skip", "yellow"),
}


def print_table(console: Console, results: Sequence[Result]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "step", "check", "seen"):
        table.add_column(column, no_wrap=column == "step")
    for result in results:
        seen = Text(result.seen)
        if result.remedy:
            seen.append(f"\n→ {result.remedy}", "yellow")
        table.add_row(Text(*_MARKS[result.outcome]), result.check.step, result.check.title, seen)
    console.print(table)


def to_json(results: Sequence[Result]) -> str:
    """`[{step, check, outcome, seen, remedy}]`; `remedy` is null but for a check that failed."""
    rows = [
        {
            "step": result.check.step,
            "check": result.check.title,
            "outcome": result.outcome.value,
            "seen": result.seen,
            "remedy": result.remedy,
        }
        for result in results
    ]
    return json.dumps(rows, indent=2)
