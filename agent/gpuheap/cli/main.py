# SPDX-License-Identifier: Apache-2.0
"""The command `gpuheap`: its subcommands, and the one place where an error becomes a message and an exit code."""

import sys
from typing import Annotated, Final

import typer

from gpuheap import __version__
from gpuheap.cli import agent, record, report
from gpuheap.cli.render import say
from gpuheap.node.errors import RecordError
from gpuheap.node.settings import SettingsError
from gpuheap.profile.model import ProfileError
from gpuheap.tracer.errors import TracerError

EXIT_ERROR: Final = 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A heap profiler for GPU memory: which line of code holds it. "
    "Exit codes: 0 done, 1 error, 2 wrong usage; `record -- COMMAND` passes on the command's own.",
)
app.command("record", context_settings={"allow_interspersed_args": False})(record.command)
app.command("report")(report.command)
app.command("agent")(agent.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuheap {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the subcommand."""


def main() -> None:
    try:
        app(prog_name="gpuheap")
    except (ProfileError, RecordError, SettingsError, TracerError) as error:
        say(f"error: {error}")
        sys.exit(EXIT_ERROR)
