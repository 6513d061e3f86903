# SPDX-License-Identifier: Apache-2.0
"""`gpuheap agent`: the service on a node."""

import dataclasses
import json
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpuheap import contract
from gpuheap.node import settings as names
from gpuheap.node.settings import AgentSettings
from gpuheap.stacks.display import Detail


def command(
    pyroscope_url: Annotated[
        str | None,
        typer.Option(
            envvar=names.PYROSCOPE_URL, help="Where profiles are pushed. Without it only metrics are served."
        ),
    ] = None,
    interval: Annotated[
        int, typer.Option(envvar=names.INTERVAL, metavar="SECONDS", help="Time between two pushes.")
    ] = contract.DEFAULT_PUSH_INTERVAL_SECONDS,
    metrics_address: Annotated[
        str,
        typer.Option(
            envvar=names.METRICS_ADDRESS, metavar="HOST:PORT", help="/metrics, /healthz and /readyz."
        ),
    ] = f"0.0.0.0:{contract.DEFAULT_METRICS_PORT}",
    node: Annotated[
        str | None, typer.Option(envvar=names.NODE, help="The node's name in labels. Default: the host name.")
    ] = None,
    cluster: Annotated[str, typer.Option(envvar=names.CLUSTER, help="The cluster's name in labels.")] = "",
    live_allocations: Annotated[
        int,
        typer.Option(
            envvar=names.LIVE_ALLOCATIONS,
            metavar="NUMBER",
            help="Size of the kernel's table of allocations in use; a fourth of it for one process. "
            "What is beyond is kept by the agent: slower, and just as exact.",
        ),
    ] = names.DEFAULT_LIVE_ALLOCATIONS,
    frames: Annotated[
        Detail,
        typer.Option(
            envvar=names.FRAMES,
            help="Which frames are pushed: all; plain, without the interpreter's own; folded, in which PyTorch's "
            "and CUDA's are one frame each time.",
        ),
    ] = Detail.PLAIN,
) -> None:
    """Trace every process on this machine; push profiles to Pyroscope and serve Prometheus metrics.

    Ends with SIGTERM or Ctrl-C, after a last push.
    """
    settings = AgentSettings.checked(
        pyroscope_url=pyroscope_url,
        interval_seconds=interval,
        metrics_address=metrics_address,
        node=socket.gethostname() if node is None else node,
        cluster=cluster,
        live_allocations=live_allocations,
        frames=frames,
    )
    _become_the_service(settings)


def _become_the_service(settings: AgentSettings) -> NoReturn:
    """With the same pid, and without the memory of what reads a command line: see gpuheap/node/__main__.py."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.execve(  # noqa: S606 - this very interpreter, and no shell
        sys.executable,
        [sys.executable, "-P", "-m", "gpuheap.node", json.dumps(dataclasses.asdict(settings))],
        {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
