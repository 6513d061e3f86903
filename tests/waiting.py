# SPDX-License-Identifier: Apache-2.0
"""Waiting for what must come. Only a failure takes to the end of it, so it is long: a busy machine is no fault."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

DEADLINE_SECONDS: Final = 240

Answer = TypeVar("Answer")


def wait_for(what: str, look: Callable[[], Answer | None]) -> Answer:
    """The first true answer of `look`. `what` is for the message when none comes."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not in {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.1)
    return answer
