# SPDX-License-Identifier: Apache-2.0
"""The sizing table holds for profiles that the agent's encoder makes and the measured rules of ingestion judge."""

import re
from pathlib import Path
from typing import Final

import pytest

from components.pyroscope_sizing import STACK_BYTES, sizing
from localcloud.load import Bucket, judged, pushes

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "pyroscope-sizing.md"
ROW: Final = re.compile(
    r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| (\w+) \| (\S+) \| (\S+) \|$", re.MULTILINE
)
NOW: Final = 1_790_000_000_000_000_000


def test_a_stack_weighs_no_more_than_the_table_says() -> None:
    (pushed,) = pushes(1000, now_ns=NOW)
    assert 100 < pushed.plain_bytes / 1000 < STACK_BYTES
    assert pushed.packed_bytes < pushed.plain_bytes / 4


def test_pyroscopes_default_limits_refuse_four_nodes() -> None:
    verdict = judged(nodes=4, processes=8, stacks=500, rate_mib=4, burst_mib=2)
    assert verdict.refused > 0
    assert verdict.reasons == {"push rate limit"}


@pytest.mark.parametrize(("nodes", "processes", "stacks"), [(1, 1, 100), (4, 8, 500), (50, 8, 1000)])
def test_limits_of_the_stack_take_the_load_that_they_are_made_for(
    nodes: int, processes: int, stacks: int
) -> None:
    needed = sizing(nodes=nodes, processes_per_node=processes, stacks_per_process=stacks)
    verdict = judged(
        nodes=nodes, processes=processes, stacks=stacks, rate_mib=needed.rate_mib, burst_mib=needed.burst_mib
    )
    assert verdict.refused == 0
    assert verdict.stored == nodes * processes * 8
    assert verdict.bytes_per_second <= needed.bytes_per_second


def test_ten_times_the_load_does_not_pass() -> None:
    needed = sizing(nodes=20, processes_per_node=8, stacks_per_process=500)
    verdict = judged(nodes=200, processes=8, stacks=500, rate_mib=needed.rate_mib, burst_mib=needed.burst_mib)
    assert verdict.refused > verdict.stored


def test_a_bucket_gives_what_has_flowed_in() -> None:
    # by hand: 100 at once, 10 a second
    bucket = Bucket(rate=10, burst=100)
    assert bucket.takes(100, 0)
    assert not bucket.takes(1, 0)
    assert bucket.takes(50, 5)
    assert not bucket.takes(101, 100)


def test_the_documents_table_is_what_the_stack_computes() -> None:
    rows = [row for row in ROW.findall(DOCUMENT.read_text()) if row[0].isdigit()]
    assert len(rows) > 5
    for nodes, processes, stacks, rate, at_once, size, distributors, ingesters in rows:
        needed = sizing(nodes=int(nodes), processes_per_node=int(processes), stacks_per_process=int(stacks))
        # by hand: nodes x processes x stacks x 260 bytes, every 15 s
        total = int(nodes) * int(processes) * int(stacks) * 260
        assert float(at_once) == pytest.approx(total / 2**20, abs=0.05)
        assert float(rate) == pytest.approx(total / 15 / 2**20, abs=0.005)
        assert (size == "single") == (total / 15 <= 4 * 2**20) == needed.fits_one_replica
        if size == "microservices":
            assert (int(distributors), int(ingesters)) == (needed.distributors, needed.ingesters)
