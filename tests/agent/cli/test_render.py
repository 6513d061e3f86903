# SPDX-License-Identifier: Apache-2.0
from rich.console import Console

from gpuheap.cli.render import function_table, printable
from gpuheap.heap.functions import by_function
from tests.agent.heap.values import frames


def test_names_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07").plain == "a\\x1b[2Jb\\x07"
    assert printable("[red]not markup[/red] Größe").plain == "[red]not markup[/red] Größe"


def test_the_table_shows_self_total_shares_and_the_heaviest_line() -> None:
    rows = by_function([(frames("main:3", "load:7"), (3 << 20,)), (frames("main:5"), (1 << 20,))])
    console = Console(width=100, record=True)
    with console.capture() as captured:
        console.print(function_table(rows, 0, 4 << 20))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[1:] == [
        ["1.00", "MiB", "25.0", "4.00", "MiB", "100.0", "main", "app.py:3"],
        ["3.00", "MiB", "75.0", "3.00", "MiB", "75.0", "load", "app.py:7"],
    ]
