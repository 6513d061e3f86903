# SPDX-License-Identifier: Apache-2.0
"""The four numbers by which a site is shown, in the order of `contract.SAMPLE_TYPES`.

Pure. An interval (what the service pushes) and a recording (what the command writes) mean different things by them:
both meanings are defined here and nowhere else.
"""

from collections.abc import Mapping

from gpuheap.heap.model import Reading, Site, Totals
from gpuheap.heap.totals import NOTHING, between

SiteValues = Mapping[Site, tuple[int, int, int, int]]
"""alloc_objects, alloc_space, inuse_objects, inuse_space of each site."""


def of_interval(earlier: Reading | None, later: Reading) -> dict[Site, tuple[int, int, int, int]]:
    """Allocated between the two readings, and in use at the later one.

    What an ended process held is not in use any more.
    """
    changes = between(earlier, later)
    result = {}
    for site, now in later.totals.items():
        change = changes.get(site, NOTHING)
        values = (change.allocated_objects, change.allocated_bytes, now.in_use_objects, now.in_use_bytes)
        if any(values):
            result[site] = values
    return result


def of_end(earlier: Reading | None, later: Reading) -> dict[Site, tuple[int, int, int, int]]:
    """Allocated between the two readings, and nothing in use.

    For the push at the end of the service: it comes between two points of the push grid, and values in use that are
    pushed twice within one step of a timeline would be summed.
    """
    return {
        site: (change.allocated_objects, change.allocated_bytes, 0, 0)
        for site, change in between(earlier, later).items()
        if change.allocated_objects or change.allocated_bytes
    }


def of_recording(totals: Mapping[Site, Totals]) -> dict[Site, tuple[int, int, int, int]]:
    """Allocated since the recording began, and in use at its end.

    Of a process that ended before, "in use" is what it held when it ended: its exit releases everything, and what it
    had not released by itself is what the reader looks for.
    """
    result = {}
    for site, one in totals.items():
        values = (one.allocated_objects, one.allocated_bytes, one.held_objects, one.held_bytes)
        if any(values):
            result[site] = values
    return result
