# SPDX-License-Identifier: Apache-2.0
"""`python -m verify --stack dev`: is the deployed stack what the published procedure says it should be?

Exit code 0 when no check failed, 1 when one did, 2 when the stack cannot be read at all.
"""

from typing import Annotated

import typer
from rich.console import Console

from .checks import CHECKS, run
from .live import OutputsUnavailable, live
from .model import Outcome
from .table import print_table, to_json


def verify(
    stack: Annotated[str, typer.Option(help="Pulumi stack to look at.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Walk the checks of Azure's GPU profiling procedure on a live stack."""
    try:
        with live(stack) as deployed:
            results = run(deployed, CHECKS)
    except OutputsUnavailable as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(to_json(results))
    else:
        print_table(Console(), results)
    raise typer.Exit(1 if any(result.outcome is Outcome.FAILED for result in results) else 0)


if __name__ == "__main__":
    typer.run(verify)
