# SPDX-License-Identifier: Apache-2.0
"""`python -m verify --stack dev`: is the deployed stack what the published procedure says it should be?

Exit code 0 when no check failed, 1 when one did, 2 when the stack cannot be read at all. `--rights` prints what an
identity needs that only verifies, and looks at nothing.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import rights
from .checks import CHECKS, run
from .live import OutputsUnavailable, live
from .model import Outcome
from .table import print_table, to_json


class Rights(StrEnum):
    KUBERNETES = "kubernetes"
    AZURE = "azure"


def verify(
    stack: Annotated[str | None, typer.Option(help="Pulumi stack to look at.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Look at the cluster by this file instead of the stack's kubeconfig.")
    ] = None,
    print_rights: Annotated[
        Rights | None, typer.Option("--rights", help="Print the rights that verifying needs, and end.")
    ] = None,
    subject: Annotated[
        str, typer.Option("--for", help="With --rights kubernetes: who gets them, in Entra by object id.")
    ] = rights.SUBJECT,
) -> None:
    """Walk the checks of Azure's GPU profiling procedure on a live stack."""
    if print_rights is not None:
        typer.echo(rights.kubernetes(subject) if print_rights is Rights.KUBERNETES else rights.azure())
        return
    if stack is None:
        raise typer.BadParameter("name the stack, as in --stack prod")
    try:
        with live(stack, kubeconfig_file=kubeconfig) as deployed:
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
