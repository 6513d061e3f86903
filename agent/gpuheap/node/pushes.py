# SPDX-License-Identifier: Apache-2.0
"""From values by site to the profiles that are pushed: one series for each process, memory kind
and device.

Pure. Labels say what the metrics' labels say, so that a dashboard can join both.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuheap import contract
from gpuheap.heap.model import Process, Site
from gpuheap.heap.notes import kind_notes, late_notes
from gpuheap.heap.samples import SiteValues
from gpuheap.heap.totals import Group, group_of
from gpuheap.profile.build import build
from gpuheap.profile.encode import compress
from gpuheap.profile.model import PUSH_SAMPLE_LABELS
from gpuheap.profile.split import split
from gpuheap.stacks.display import Detail

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
    joined_late: frozenset[Process] = frozenset(),
    detail: Detail = Detail.PLAIN,
) -> list[Push]:
    """The profiles of all processes; where all values are zero there is none, as the server would not store it.

    A query that names the kind never adds up what is not of one sort. Two images of one process (before and after
    exec) with the same name are one series. To `notes` come those on the series' own process and kind.
    """
    groups: dict[Labels, dict[Site, tuple[int, int, int, int]]] = {}
    for site, values in site_values.items():
        groups.setdefault(_labels(group_of(site), node, cluster), {})[site] = values
    result = []
    for labels, group in groups.items():
        late = joined_late & {site.process for site in group}
        whole = build(
            group,
            label_names=PUSH_SAMPLE_LABELS,
            time_unix_ns=time_unix_ns,
            duration_ns=duration_ns,
            notes=(*late_notes(late), *kind_notes(group), *notes),
            detail=detail,
        )
        for number, part in enumerate(split(whole), start=1):
            # Pyroscope 1.x keeps one profile for each series and time: further parts are series of their own.
            extra = () if number == 1 else (("part", str(number)),)
            result.append(Push(labels=(*labels, *extra), pprof=compress(part)))
    return result


def _labels(group: Group, node: str, cluster: str) -> Labels:
    process, kind, device = group
    labels = {
        "__name__": contract.PROFILE_NAME,
        # alloc_* are what the interval brought; without this label Pyroscope 1.x would take differences of them.
        "__delta__": "false",
        "service_name": process.name or "unknown",
        "node": node,
        "process": process.name,
        "pid": str(process.pid),
        contract.KIND_LABEL: kind.value,
        contract.DEVICE_LABEL: device.text,
    }
    if device.uuid:
        labels[contract.GPU_LABEL] = device.uuid
    if cluster:
        labels["cluster"] = cluster
    return tuple(labels.items())
