# SPDX-License-Identifier: Apache-2.0
"""From what is pushed to what Pyroscope needs: limits, replicas, memory. Pure.

What a stack weighs is measured with the agent's own encoder (`localcloud/load.py`); what a replica carries is an
assumption, named as such below. docs/pyroscope-sizing.md has the table.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpuheap.contract import DEFAULT_PUSH_INTERVAL_SECONDS

MEBI: Final = 1 << 20

STACK_BYTES: Final = 260
"""Of one stack of forty frames in an uncompressed profile, most frames shared with other stacks: what limits count."""
SERIES_PER_PROCESS: Final = 4 * 3
"""Four sample types, of the two or three kinds of memory that a process has."""

# Assumptions: no published figure says what one replica of each carries. They err on the side of more replicas.
DISTRIBUTOR_BYTES_PER_SECOND: Final = 8 * MEBI
INGESTER_BYTES_PER_SECOND: Final = 4 * MEBI
SINGLE_BYTES_PER_SECOND: Final = 4 * MEBI
"""Beyond it one replica is refused: Pyroscope's own default limit of a tenant."""

HEADROOM: Final = 1.5
SMALLEST_BURST_MIB: Final = 4
"""A profile of the largest size that the agent pushes must pass, whatever the load."""
DEFAULT_SERIES: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What a load needs."""

    bytes_per_interval: int
    """Uncompressed. All agents push at the same moments, so that timelines can be added up."""
    rate_mib: int
    """MiB per second that are allowed."""
    burst_mib: int
    """MiB that are allowed at once: a whole interval's pushes, with headroom."""
    series: int
    fits_one_replica: bool
    distributors: int
    ingesters: int

    @property
    def bytes_per_second(self) -> float:
        return self.bytes_per_interval / DEFAULT_PUSH_INTERVAL_SECONDS


def sizing(*, nodes: int, processes_per_node: int, stacks_per_process: int, replication: int = 3) -> Sizing:
    """What so many processes with so many stacks each need."""
    interval = nodes * processes_per_node * stacks_per_process * STACK_BYTES
    rate = interval / DEFAULT_PUSH_INTERVAL_SECONDS
    return Sizing(
        bytes_per_interval=interval,
        rate_mib=max(4, math.ceil(rate * HEADROOM / MEBI)),
        burst_mib=max(SMALLEST_BURST_MIB, math.ceil(interval * HEADROOM / MEBI)),
        series=max(DEFAULT_SERIES, nodes * processes_per_node * SERIES_PER_PROCESS * 2),
        fits_one_replica=rate <= SINGLE_BYTES_PER_SECOND,
        distributors=max(2, math.ceil(rate / DISTRIBUTOR_BYTES_PER_SECOND)),
        ingesters=max(replication, math.ceil(rate * replication / INGESTER_BYTES_PER_SECOND)),
    )
