# SPDX-License-Identifier: Apache-2.0
"""The last reference to what is closed goes in another process."""

import os
import select
import sys
from collections.abc import Iterator

import pytest

from gpuheap.tracer.detaching import closed_elsewhere
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: its first end is at its end of file when nobody has the second one any more."""
    ends = os.pipe()
    yield ends
    os.close(ends[0])


def at_end(reader: int, seconds: float) -> bool:
    return bool(select.select([reader], [], [], seconds)[0])


def test_what_is_closed_in_the_block_lives_until_its_end(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with closed_elsewhere([writer]):
        os.close(writer)
        assert not at_end(reader, 0)
    assert at_end(reader, DEADLINE_SECONDS), "nobody has it any more"


def test_what_is_not_closed_stays(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with closed_elsewhere([writer]):
        pass
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    os.close(writer)


def test_where_no_process_can_be_started_it_is_closed_at_once(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with closed_elsewhere([writer]):
        os.close(writer)
        assert at_end(reader, 0)
