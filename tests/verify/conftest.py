# SPDX-License-Identifier: Apache-2.0
"""Waiting, for tests of checks."""

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def until() -> Callable[[str, Callable[[], bool]], None]:
    """Waits until something is so."""

    def wait(what: str, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not look():
            assert time.monotonic() < deadline, f"not in 30 s: {what}"
            time.sleep(0.05)

    return wait
