# SPDX-License-Identifier: Apache-2.0
"""`python -m recovery --stack dev`: after a `pulumi up` that was killed, so that the next one can go on.

An engine that dies does not know whether the creations under way had an effect, and azure-native refuses to create what
is there. Names are given by the program, so the ids are known: what exists is taken into the state, the rest is
forgotten; so is what Helm had not brought to an end. Where the answer to a creation was lost, the engine lives, and
its next run names what is there: `--adopt`. Where nothing is unfinished it changes nothing: a pipeline can run it
before each `pulumi up`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .engine import EngineFailed, Locked, NoEngine, Stack
from .helm import ClusterSilent, Record, unfinished_records
from .ids import UnknownType
from .state import (
    NotWanted,
    as_half_made,
    as_if_created,
    as_wanted,
    half_made,
    interrupted,
    operations,
    resources,
    unfinished_creations,
)

SUBSCRIPTION_KEY = "azure-native:subscriptionId"


def recover(
    stack: Annotated[str, typer.Option(help="Pulumi stack whose update was interrupted.")],
    unlock: Annotated[
        bool,
        typer.Option("--unlock", help="The command that holds the stack's lock is dead: remove the lock."),
    ] = False,
    adopt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="What `pulumi up` cannot create because it exists: it is the stack's."
        ),
    ] = None,
    config_file: Annotated[Path | None, typer.Option(help="As for pulumi.")] = None,
    directory: Annotated[Path, typer.Option(help="Where the program is.")] = Path(),
) -> None:
    """Take what a `pulumi up` has made that was killed, or was not answered, into the stack's state.

    Where nothing is unfinished it changes nothing.
    """
    engine = Stack(name=stack, directory=directory, config_file=config_file)
    try:
        if unlock:
            engine.unlock()
        taken = _taken_in(engine, adopt or [])
    except Locked as error:
        _end(f"{error}\nif no such command runs any more, run this again with --unlock")
    except UnknownType as error:
        _end(
            f"{error} was being created, and recovery/ids.py does not know its id: `pulumi refresh` asks for it"
        )
    except NotWanted as error:
        _end(f"{error} is nothing that the next `pulumi up` would create; give the id as its error has it")
    except (EngineFailed, NoEngine) as error:
        _end(str(error))
    if taken is None:
        typer.echo("nothing is unfinished")
    else:
        made, left = taken
        typer.echo(f"{made} had been made and are in the state now, {left} are left to the next `pulumi up`")


def _taken_in(engine: Stack, adopted: Sequence[str]) -> tuple[int, int] | None:
    """How many of the unfinished creations had been made, and how many had not. None: nothing was unfinished, and
    nothing was done.
    """
    subscription = engine.config(SUBSCRIPTION_KEY) or os.environ.get("ARM_SUBSCRIPTION_ID")
    if not subscription:
        _end(f"no subscription: set {SUBSCRIPTION_KEY} in the stack's configuration, or ARM_SUBSCRIPTION_ID")
    state = engine.state()
    if adopted:
        state = as_wanted(state, engine.plan(), adopted, subscription)
    records = _unfinished_installations(engine)
    if not (records or operations(state)):
        return None
    found, errors = unfinished_creations(state, subscription), half_made(state)
    for one in found:
        typer.echo(f"unfinished: {one.urn}" + (f", perhaps made: {one.id}" if one.id else ""))
    engine.replace_state(as_if_created(state, found))  # also for nothing: Locked, if somebody is at work
    _forget(records)
    engine.refresh()
    state = engine.state()
    if errors := errors | interrupted(state, found):
        engine.replace_state(as_half_made(state, errors))
    there = {resource["urn"] for resource in resources(state)}
    made = sum(one.urn in there for one in found)
    return made, len(found) - made


def _unfinished_installations(engine: Stack) -> list[Record]:
    try:
        return unfinished_records(engine.state(show_secrets=True))
    except ClusterSilent as error:
        _tell(error)
        return []


def _forget(records: Sequence[Record]) -> None:
    try:
        for record in records:
            record.remove()
            typer.echo(f"removed Helm's record of an installation that did not end: Secret {record}")
    except ClusterSilent as error:
        _tell(error)


def _tell(error: ClusterSilent) -> None:
    typer.echo(f"{error}; `another operation is in progress` will be Helm's answer if there is one", err=True)


def _end(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(recover)
