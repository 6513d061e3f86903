# SPDX-License-Identifier: Apache-2.0
"""`python -m localcloud`: the local cloud from the command line."""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from localcloud.cloud import CloudFailed, LocalCloud, default_state
from localcloud.kube.component import ComponentFailed
from localcloud.status import parts, table
from localcloud.toolchain import NotSetUp, resolve

State = Annotated[
    Path,
    typer.Option(
        default_factory=default_state,
        help="Folder of the cloud's state.",
        envvar="GPUHEAP_LOCALCLOUD",
        show_default=".localcloud in the checkout",
    ),
]

PASSING_ON: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Options behind the first argument are the command's, also without `--`."""

app = typer.Typer(
    help="A cloud on this machine: a real Kubernetes control plane and a simulated Azure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def up(state: State) -> None:
    """Start it; does nothing when it runs."""
    started = time.monotonic()
    cloud = LocalCloud(state)
    if cloud.running:
        typer.echo(f"runs already in {cloud.state}")
        return
    cloud.start(lambda text: typer.echo(f"{time.monotonic() - started:6.1f} s  {text}"))
    typer.echo(f"running in {cloud.state}; use it with `python -m localcloud run -- COMMAND`")


@app.command()
def down(state: State) -> None:
    """Stop it; the logs stay."""
    LocalCloud(state).stop()


@app.command()
def status(state: State) -> None:
    """Print which of its parts run, and where; exit code 1 when one does not."""
    endpoints = LocalCloud(state).endpoints
    lines = parts(endpoints)
    typer.echo(table(lines))
    typer.echo(f"\nkubeconfig  {endpoints.kubeconfig}\nca          {endpoints.ca}")
    raise typer.Exit(0 if all(part.lives for part in lines) else 1)


@app.command()
def env(state: State) -> None:
    """Print the variables that make a shell use it: `eval "$(python -m localcloud env)"`."""
    for name, value in LocalCloud(state).settings().items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command(context_settings=PASSING_ON)
def run(state: State, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")]) -> None:
    """Run a command that uses it."""
    _become(state, command)


@app.command(context_settings=PASSING_ON)
def kubectl(state: State, arguments: Annotated[list[str], typer.Argument(metavar="-- ARGUMENTS...")]) -> None:
    """Run the kubectl of the control plane's version in it; none needs to be installed."""
    _become(state, [str(resolve().control_plane), "kubectl", *arguments])


def _become(state: Path, command: list[str]) -> NoReturn:
    environment = LocalCloud(state).environment()
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise CloudFailed(f"cannot run {command[0]}: {error.strerror}") from error


@app.command(hidden=True)
def serve(state: State) -> None:
    """Be the process that runs it, until a signal comes. `up` starts this."""
    # Half a second that no other command needs.
    from localcloud import supervisor
    from localcloud.azure.server import CannotServe

    try:
        supervisor.serve(state.absolute())
    except CannotServe as error:
        raise CloudFailed(str(error)) from error


def main() -> int:
    try:
        app(prog_name="python -m localcloud")
    except (CloudFailed, ComponentFailed, NotSetUp) as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
