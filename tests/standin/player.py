# SPDX-License-Identifier: Apache-2.0
"""Runs `play` for tests that need no tracer, and reads the ledger of the stand-in."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.standin.build import StandIn
from tests.waiting import DEADLINE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A row of the ledger: one kind on one device."""

    allocated_bytes: int = 0
    allocated_objects: int = 0
    freed_bytes: int = 0
    freed_objects: int = 0

    @property
    def live(self) -> tuple[int, int]:
        """Bytes and objects."""
        return self.allocated_bytes - self.freed_bytes, self.allocated_objects - self.freed_objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    kinds: dict[tuple[str, int], Counts]
    """By kind and device ordinal; -1 is the host."""
    failed: dict[int, int]
    """Allocating calls that failed, by CUresult."""
    failed_calls: dict[str, dict[int, int]]
    failed_frees: dict[str, dict[int, int]]
    pools: dict[int, tuple[int, int, int]]
    """By handle: device ordinal, live and reserved bytes."""

    def of(self, kind: str, device: int = 0) -> Counts:
        return self.kinds.get((kind, device), Counts())


def parse(line: str) -> Ledger:
    """Of the line that a checkpoint prints."""
    document: dict[str, Any] = json.loads(line)
    return Ledger(
        kinds={(row.pop("kind"), row.pop("device")): Counts(**row) for row in document["kinds"]},
        failed=_by_code(document["failed"]),
        failed_calls={call: _by_code(codes) for call, codes in document["failed_calls"].items()},
        failed_frees={call: _by_code(codes) for call, codes in document["failed_frees"].items()},
        pools={
            row["pool"]: (row["device"], row["live_bytes"], row["reserved_bytes"])
            for row in document["pools"]
        },
    )


def _by_code(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(code): count for code, count in counts.items()}


def play(
    standin: StandIn, lines: Iterable[str], *, environment: Mapping[str, str] | None = None
) -> list[str]:
    """What `play` prints for these lines. Raises CalledProcessError when it does not understand one."""
    done = subprocess.run(
        [standin.play, "-v"],
        input="\n".join(lines),
        env={**standin.environment(), **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    return done.stdout.splitlines()
