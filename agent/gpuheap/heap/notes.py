# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a reading do not say by themselves, in sentences: for a terminal, a file, a page.

Pure. Bytes of different kinds are never added up here either.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpuheap.heap.losses import loss_notes
from gpuheap.heap.model import MemoryKind, Pool, PoolTotals, Process, Reading, Site
from gpuheap.heap.out_of_memory import out_of_memory_notes
from gpuheap.heap.quantities import bytes_text, count_text, cuda_result_text
from gpuheap.heap.words import device_text, process_text

KIND_NOTES: Final[Mapping[MemoryKind, str]] = {
    MemoryKind.MANAGED: "managed memory moves between host and GPU: how much of it is where is not known",
    MemoryKind.ARRAY: "array memory is estimated from size and format: the driver does not tell what it takes",
    MemoryKind.GRAPH: "graph memory is what existing graphs ask for; it is taken while they run",
    MemoryKind.IMPORTED: "imported memory belongs to another process, which is charged with it; "
    "it shows as 0 B where its size is not known",
}
"""Kinds whose bytes are not simply bytes that are taken."""


def end_notes(reading: Reading) -> tuple[str, ...]:
    """What "in use" means for processes that have ended."""
    ended = {site.process for site in reading.totals} & reading.exited
    return tuple(
        f"{process_text(process)} ended: shown as in use is what it held when it ended"
        for process in _ordered(ended)
    )


def notes(reading: Reading) -> tuple[str, ...]:
    """Failures for want of memory, what is missing, what failed, what pools keep, what kinds mean, and losses."""
    return (
        *out_of_memory_notes(reading.out_of_memory),
        *late_notes(reading.joined_late),
        *failure_notes(reading.failures),
        *pool_notes(reading.pools),
        *kind_notes(reading.totals),
        *loss_notes(reading.losses),
    )


def late_notes(joined_late: Iterable[Process]) -> tuple[str, ...]:
    return tuple(
        f"{process_text(process)} ran before tracing began: what it allocated before is in no figure"
        for process in _ordered(joined_late)
    )


def failure_notes(failures: Mapping[tuple[Process, int], int]) -> tuple[str, ...]:
    return tuple(
        f"{process_text(process)}: {count_text(count, 'allocation call')} failed with {cuda_result_text(code)}"
        for (process, code), count in sorted(
            failures.items(), key=lambda entry: (*_key(entry[0][0]), entry[0][1])
        )
    )


def pool_notes(pools: Mapping[Pool, PoolTotals]) -> tuple[str, ...]:
    """One sentence for each process whose pools keep memory that no allocation uses."""
    kept: dict[Process, dict[str, int]] = {}
    for pool, totals in pools.items():
        if totals.retained_bytes:
            devices = kept.setdefault(pool.process, {})
            text = device_text(pool.device.text) or "the host"
            devices[text] = devices.get(text, 0) + totals.retained_bytes
    return tuple(
        f"{process_text(process)}: memory pools keep "
        + ", ".join(f"{bytes_text(count)} on {device}" for device, count in sorted(kept[process].items()))
        + " that no allocation uses; it is in no figure"
        for process in _ordered(kept)
    )


def kind_notes(sites: Iterable[Site]) -> tuple[str, ...]:
    """What the bytes of the kinds that occur mean, where that is not plain."""
    present = {site.kind for site in sites}
    return tuple(text for kind, text in KIND_NOTES.items() if kind in present)


def _ordered(processes: Iterable[Process]) -> list[Process]:
    return sorted(processes, key=_key)


def _key(process: Process) -> tuple[int, int, int]:
    return process.pid, process.start_ns, process.generation
