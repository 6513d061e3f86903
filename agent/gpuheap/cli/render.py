# SPDX-License-Identifier: Apache-2.0
"""How results look on a terminal. Everything goes to standard error: standard output is the recorded command's."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuheap.heap.functions import FunctionRow
from gpuheap.heap.quantities import bytes_text
from gpuheap.printable import printable as without_control

_PLAIN_WIDTH: Final = 240  # where there is no terminal, lines are not folded


def console() -> Console:
    result = Console(stderr=True, highlight=False)
    return result if result.is_terminal else Console(stderr=True, highlight=False, width=_PLAIN_WIDTH)


def say(text: str) -> None:
    """One line, with the program's name before it."""
    console().print(printable(f"gpuheap: {text}"), soft_wrap=True)


def printable(text: str) -> Text:
    """Text as it is, but for control characters: names come from traced programs and must not steer the terminal."""
    return Text(without_control(text))


def function_table(rows: Sequence[FunctionRow], measure: int, total: int) -> Table:
    """Self and total of functions, in bytes. `measure` is the index of the value shown."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("Self", "Self %", "Total", "Total %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Function", overflow="fold", ratio=2)
    table.add_column("File and heaviest line", overflow="fold", ratio=3, style="dim")
    for row in rows:
        own, all_of_it = row.own[measure], row.total[measure]
        line = row.heaviest_line(measure)
        table.add_row(
            bytes_text(own),
            _share(own, total),
            bytes_text(all_of_it),
            _share(all_of_it, total),
            printable(row.function),
            printable(f"{row.file}:{line}" if line else row.file),
        )
    return table


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.1f}" if total else "0.0"
