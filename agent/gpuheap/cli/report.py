# SPDX-License-Identifier: Apache-2.0
"""`gpuheap report`: one HTML page from a profile."""

from pathlib import Path
from typing import Annotated

import typer

from gpuheap.cli.render import say
from gpuheap.profile.files import OutputFile, read_profile
from gpuheap.profile.html import page


def command(
    file: Annotated[Path, typer.Argument(help="A profile: what `gpuheap record` wrote, or any pprof file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page. Default: beside FILE, with .html.")
    ] = None,
) -> None:
    """Write a flame graph and function table as one HTML file that needs nothing else."""
    profile = read_profile(file)
    target = output or file.with_name(f"{file.name.removesuffix('.gz').removesuffix('.pb')}.html")
    with OutputFile(target) as out:
        out.commit(page(profile, source=file.name).encode())
    say(f"wrote {target}: open it in a browser")
