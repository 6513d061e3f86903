# SPDX-License-Identifier: Apache-2.0
"""What of a running local cloud lives: its processes and its addresses, asked now."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from localcloud.cloud import Endpoints
from localcloud.kube.control_plane import PROGRAMS

CONNECT_SECONDS: Final = 2.0
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of the status."""

    name: str
    lives: bool
    pid: int | None
    url: str


def parts(endpoints: Endpoints) -> Sequence[Part]:
    """Every part of the cloud with these endpoints."""
    supervisor = endpoints.supervisor_pid
    programs = dict(_children(supervisor))
    kubeconfig = yaml.safe_load(endpoints.kubeconfig.read_text())
    urls = {"kube-apiserver": kubeconfig["clusters"][0]["cluster"]["server"]}
    return [
        Part(name="supervisor", lives=(PROC / str(supervisor)).exists(), pid=supervisor, url=""),
        *(
            Part(name=name, lives=name in programs, pid=programs.get(name), url=urls.get(name, ""))
            for name in PROGRAMS
        ),
        *(
            Part(name=name, lives=_listens(url), pid=supervisor, url=url)
            for name, url in {
                "azure, grafana": endpoints.arm,
                "identity": endpoints.identity,
                "pyroscope": endpoints.pyroscope,
            }.items()
        ),
    ]


def table(lines: Sequence[Part]) -> str:
    """The parts as text in columns."""
    rows = [("COMPONENT", "STATE", "PID", "URL")]
    rows += [
        (each.name, "running" if each.lives else "stopped", str(each.pid or "-"), each.url or "-")
        for each in lines
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _children(parent: int) -> Iterator[tuple[str, int]]:
    """The programs that a process started, by the name that it gave them as their first argument."""
    for folder in PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            # proc_pid_stat(5): the command stands in parentheses and may hold anything; then state and parent.
            _state, found, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if int(found) == parent and len(arguments) > 1:
            yield arguments[1].decode(errors="replace"), int(folder.name)


def _listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), CONNECT_SECONDS):
            return True
    except OSError:
        return False
