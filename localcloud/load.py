# SPDX-License-Identifier: Apache-2.0
"""Makes the load of a cluster with the agent's own encoder, and lets the rules of Pyroscope's ingestion judge it.

    python -m localcloud.load --nodes 10 --processes 8 --stacks 1000

Pushes nothing anywhere: profiles are judged by `localcloud/azure/ingest.py`, and the rate by the token bucket that
Pyroscope documents, with a clock of its own.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from components.pyroscope_sizing import MEBI, sizing
from gpuheap.contract import DEFAULT_PUSH_INTERVAL_SECONDS
from gpuheap.heap.model import Frame
from gpuheap.profile.encode import compress
from gpuheap.profile.model import Profile, Sample
from gpuheap.profile.split import split
from localcloud.azure.ingest import Refused, checked_labels, checked_profile

DEPTH: Final = 40
"""Frames of a stack: a deep one of PyTorch's, Python and native together."""
FANOUT: Final = 4
"""How many different callees a function has here: stacks share their outer frames, as those of one program do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """One profile, as it would be pushed."""

    plain_bytes: int
    packed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a load over some intervals."""

    stored: int
    refused: int
    bytes_per_second: float
    """Uncompressed: what the limits count."""
    reasons: frozenset[str]


def profile(stacks: int, *, now_ns: int) -> Profile:
    """A process with so many different stacks, all with memory in use."""
    samples = tuple(
        Sample(
            stack=_stack(number),
            values=(number % 7 + 1, (number % 7 + 1) << 20, number % 3 + 1, (number % 3 + 1) << 20),
            labels=(("device", "0"), ("kind", "device")),
        )
        for number in range(stacks)
    )
    return Profile(
        samples=samples, time_unix_ns=now_ns, duration_ns=DEFAULT_PUSH_INTERVAL_SECONDS * 1_000_000_000
    )


def _stack(number: int) -> tuple[Frame, ...]:
    """A path through a tree of calls: the digits of `number` say which way it turns, from the leaf outwards."""
    frames = []
    for depth in range(DEPTH):
        path = number // FANOUT ** (DEPTH - 1 - depth) if DEPTH - 1 - depth < 12 else 0
        name = f"Module{depth}.forward_{path}"
        frames.append(Frame(function=name, file=f"/opt/app/model/layer_{depth}.py", line=100 + path % 400))
    return tuple(frames)


def pushes(stacks: int, *, now_ns: int) -> list[Pushed]:
    """What one process pushes in an interval."""
    return [
        Pushed(plain_bytes=len(part), packed_bytes=len(compress(part)))
        for part in split(profile(stacks, now_ns=now_ns))
    ]


class Bucket:
    """A token bucket: so many bytes a second, so many at once."""

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate, self._burst, self._tokens, self._at = rate, burst, burst, 0.0

    def takes(self, amount: int, at: float) -> bool:
        self._tokens = min(self._burst, self._tokens + (at - self._at) * self._rate)
        self._at = at
        if amount > self._tokens:
            return False
        self._tokens -= amount
        return True


def judged(
    *, nodes: int, processes: int, stacks: int, rate_mib: float, burst_mib: float, intervals: int = 8
) -> Verdict:
    """Every process pushes once an interval, all at the interval's beginning, as the agents do."""
    now = datetime.now(UTC)
    one = profile(stacks, now_ns=int(now.timestamp() * 1e9))
    parts = split(one)
    labels = checked_labels([("__name__", "gpu_memory"), ("service_name", "load"), ("pid", "1")])
    refusals = _refusals(parts, labels, now)
    bucket = Bucket(rate=rate_mib * MEBI, burst=burst_mib * MEBI)
    stored = refused = 0
    reasons = set(refusals)
    for interval in range(intervals):
        for _ in range(nodes * processes):
            for part in parts:
                if refusals or not bucket.takes(len(part), float(interval * DEFAULT_PUSH_INTERVAL_SECONDS)):
                    refused += 1
                    reasons |= set() if refusals else {"push rate limit"}
                else:
                    stored += 1
    total = nodes * processes * sum(map(len, parts))
    return Verdict(
        stored=stored,
        refused=refused,
        bytes_per_second=total / DEFAULT_PUSH_INTERVAL_SECONDS,
        reasons=frozenset(reasons),
    )


def _refusals(parts: Sequence[bytes], labels: Mapping[str, str], now: datetime) -> set[str]:
    """What is refused whatever the rate."""
    found = set()
    for part in parts:
        try:
            checked_profile(part, labels, now)
        except Refused as refused:
            found.add(str(refused))
    return found


def report(nodes: int, processes: int, stacks: int) -> Iterator[str]:
    needed = sizing(nodes=nodes, processes_per_node=processes, stacks_per_process=stacks)
    started = time.process_time()
    pushed = pushes(stacks, now_ns=time.time_ns())
    seconds = time.process_time() - started
    plain, packed = sum(one.plain_bytes for one in pushed), sum(one.packed_bytes for one in pushed)
    yield f"one process: {len(pushed)} profile(s), {plain} bytes, {packed} compressed, {seconds:.3f} s of CPU"
    yield f"one stack: {plain / stacks:.0f} bytes, {packed / stacks:.0f} compressed"
    for name, rate, burst in (("defaults", 4, 2), ("sized", needed.rate_mib, needed.burst_mib)):
        verdict = judged(nodes=nodes, processes=processes, stacks=stacks, rate_mib=rate, burst_mib=burst)
        told = f" ({', '.join(sorted(verdict.reasons))})" if verdict.reasons else ""
        yield (
            f"{name}, {rate} MiB/s and {burst} MiB at once: {verdict.stored} stored, {verdict.refused} refused{told}"
        )
    size = "single" if needed.fits_one_replica else "microservices"
    yield (
        f"{verdict.bytes_per_second / MEBI:.2f} MiB/s: {size}"
        + (
            ""
            if needed.fits_one_replica
            else f", {needed.distributors} distributors, {needed.ingesters} ingesters"
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localcloud.load", description=__doc__)
    for name, default in (("nodes", 4), ("processes", 8), ("stacks", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    for line in report(asked.nodes, asked.processes, asked.stacks):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
