# SPDX-License-Identifier: Apache-2.0
"""How results are shown and kept: tables on the terminal, one JSON file."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, document


def show(console: Console, title: str, figures: Sequence[Figure]) -> None:
    if not figures:
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("median", justify="right")
    table.add_column("quartiles", justify="right")
    table.add_column("unit")
    for figure in figures:
        spread = "" if figure.low == figure.high else f"{number(figure.low)} … {number(figure.high)}"
        table.add_row(figure.name, number(figure.value), spread, figure.unit)
    console.print(table)
    console.print()


def rows(console: Console, columns: Sequence[str], content: Iterable[Sequence[str]]) -> None:
    """A plain table: the first column is text, the others are numbers."""
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in content:
        table.add_row(*row)
    console.print(table)


def number(value: float) -> str:
    """Three digits that mean something."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"


def write(path: Path, machine: dict[str, Any], figures: Sequence[Figure]) -> None:
    content = document(machine, figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.rename(path)


def machine(notes: Sequence[str]) -> dict[str, Any]:
    """Where the figures come from, with what was skipped in `notes`."""
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "notes": list(notes),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
