# SPDX-License-Identifier: Apache-2.0
"""Removes folders that programs which are just ending may still use."""

import shutil
import time
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.05


def remove_when_unused(folder: Path, seconds: float) -> None:
    """A folder that is not there is fine. Raises OSError when it is still in use after so many seconds."""
    deadline = time.monotonic() + seconds
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
