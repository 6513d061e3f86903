# SPDX-License-Identifier: Apache-2.0
"""Results for people (a table, with the remedy below each failure) and for programs (JSON)."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .model import Result


def print_table(console: Console, results: Sequence[Result]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "step", "check", "seen"):
        table.add_column(column, no_wrap=column == "step")
    for result in results:
        mark = Text("pass", "green") if result.passed else Text("FAIL", "bold red")
        seen = Text(result.seen)
        if not result.passed:
            seen.append(f"\n→ {result.check.remedy}", "yellow")
        table.add_row(mark, result.check.step, result.check.title, seen)
    console.print(table)


def to_json(results: Sequence[Result]) -> str:
    """`[{step, check, passed, seen, remedy}]`; `remedy` is null for a check that passed."""
    rows = [
        {
            "step": result.check.step,
            "check": result.check.title,
            "passed": result.passed,
            "seen": result.seen,
            "remedy": None if result.passed else result.check.remedy,
        }
        for result in results
    ]
    return json.dumps(rows, indent=2)
