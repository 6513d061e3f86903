# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on totals: sums, what happened between two readings, grouping by process.

Pure. Bytes of different memory kinds never meet here: every grouping keeps the kind in its key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Final

from gpuheap.heap.model import MemoryKind, Process, Reading, Site, Totals

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


def by_process(totals: Mapping[Site, Totals]) -> dict[tuple[Process, MemoryKind], Totals]:
    """Totals of each process and memory kind, over its threads and stacks."""
    groups: dict[tuple[Process, MemoryKind], list[Totals]] = {}
    for site, one in totals.items():
        groups.setdefault((site.process, site.kind), []).append(one)
    return {key: total(group) for key, group in groups.items()}
