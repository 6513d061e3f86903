# SPDX-License-Identifier: Apache-2.0
"""How many files this process may have open: as many as it is allowed to, since the tracer holds the mapped ones open.

The usual limit of 1,024 is for programs that call select(2), which this one does not.
"""

import resource
from contextlib import suppress
from typing import Final

WANTED: Final = 1 << 20
"""Some machines allow a thousand times as many, which nobody would need."""


def allow_many_open_files() -> None:
    """Of this process, and of those that it starts from now on: start a recorded command before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # refused: then the limit stays, and what is beyond it is counted
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, WANTED)), hard))
