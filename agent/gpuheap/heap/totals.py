# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on totals: sums, what happened between two readings, grouping by process, kind and device.

Pure. Bytes of different memory kinds never meet here: every grouping keeps the kind in its key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Final, NamedTuple

from gpuheap.heap.model import Device, MemoryKind, Process, Reading, Site, Totals

_FIELDS: Final = tuple(field.name for field in fields(Totals))
NOTHING: Final = Totals()


def add(left: Totals, right: Totals) -> Totals:
    return Totals(**{name: getattr(left, name) + getattr(right, name) for name in _FIELDS})


def subtract(left: Totals, right: Totals) -> Totals:
    return Totals(**{name: getattr(left, name) - getattr(right, name) for name in _FIELDS})


def total(many: Iterable[Totals]) -> Totals:
    """The sum of totals of one memory kind."""
    sums = dict.fromkeys(_FIELDS, 0)
    for one in many:
        for name in _FIELDS:
            sums[name] += getattr(one, name)
    return Totals(**sums)


def between(earlier: Reading | None, later: Reading) -> dict[Site, Totals]:
    """What happened at each site after `earlier` and up to `later`; sites where nothing happened are left out.

    Without an earlier reading all of `later` is new. A reused pid is another `Process`, so its sites start at zero.
    A site that is gone from `later` was forgotten after its process ended, and adds nothing. A counter that fell can
    only have started again: then all of its new value happened in between.
    """
    known = earlier.totals if earlier is not None else {}
    result: dict[Site, Totals] = {}
    for site, now in later.totals.items():
        before = known.get(site, NOTHING)
        change = subtract(now, before)
        if any(getattr(change, name) < 0 for name in _FIELDS):
            change = now
        if change != NOTHING:
            result[site] = change
    return result


class Group(NamedTuple):
    """Whose memory, of which kind, and where: what may be added up."""

    process: Process
    kind: MemoryKind
    device: Device


def group_of(site: Site) -> Group:
    return Group(site.process, site.kind, site.device)


def by_process(totals: Mapping[Site, Totals]) -> dict[Group, Totals]:
    """Totals of each process, memory kind and device, over its threads, stacks and calls."""
    groups: dict[Group, list[Totals]] = {}
    for site, one in totals.items():
        groups.setdefault(group_of(site), []).append(one)
    return {key: total(group) for key, group in groups.items()}
