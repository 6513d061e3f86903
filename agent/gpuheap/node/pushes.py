# SPDX-License-Identifier: Apache-2.0
"""From values by site to the profiles that are pushed: one series for each process.

Pure. Labels say what the metrics' labels say, so that a dashboard can join both.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuheap import contract
from gpuheap.heap.model import Process, Site
from gpuheap.heap.samples import SiteValues
from gpuheap.profile.build import build
from gpuheap.profile.encode import encode_gzip
from gpuheap.profile.model import PUSH_SAMPLE_LABELS
from gpuheap.profile.split import split

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One profile of one series: what a single request carries."""

    labels: Labels
    pprof: bytes


def pushes(
    site_values: SiteValues,
    *,
    node: str,
    cluster: str,
    time_unix_ns: int,
    duration_ns: int,
    notes: Iterable[str] = (),
) -> list[Push]:
    """The profiles of all processes; a process whose values are all zero has none, as the server would not store it.

    Two images of one process (before and after exec) with the same name are one series.
    """
    groups: dict[Labels, dict[Site, tuple[int, int, int, int]]] = {}
    for site, values in site_values.items():
        groups.setdefault(_labels(site.process, node, cluster), {})[site] = values
    result = []
    for labels, group in groups.items():
        whole = build(
            group,
            label_names=PUSH_SAMPLE_LABELS,
            time_unix_ns=time_unix_ns,
            duration_ns=duration_ns,
            notes=notes,
        )
        for number, part in enumerate(split(whole), start=1):
            # Pyroscope 1.x keeps one profile for each series and time: further parts are series of their own.
            extra = () if number == 1 else (("part", str(number)),)
            result.append(Push(labels=(*labels, *extra), pprof=encode_gzip(part)))
    return result


def _labels(process: Process, node: str, cluster: str) -> Labels:
    labels = {
        "__name__": contract.PROFILE_NAME,
        # alloc_* are what the interval brought; without this label Pyroscope 1.x would take differences of them.
        "__delta__": "false",
        "service_name": process.name or "unknown",
        "node": node,
        "process": process.name,
        "pid": str(process.pid),
    }
    if cluster:
        labels["cluster"] = cluster
    return tuple(labels.items())
