# SPDX-License-Identifier: Apache-2.0
"""Lets go of many perf-event links at once, without making anybody wait for it.

The kernel removes the uprobe of a perf event behind a lock and several RCU grace periods: a tenth of a second each, one
after the other, whoever closes them. So a process of its own closes the last references, after the tracer has stopped
them and has closed its own.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

UNTIL_CLOSED: Final = "import os; os.read(0, 1)"
"""Ends, and so closes what it has, when its standard input ends: also by the death of its parent."""


@contextmanager
def closed_elsewhere(descriptors: Sequence[int]) -> Iterator[None]:
    """Whatever of `descriptors` is closed in the block, is not the last reference: that one goes in the background.

    Where no process can be started, it is the last one, and closing takes its time.
    """
    ours, theirs = os.pipe()
    try:
        holder = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", UNTIL_CLOSED],
            stdin=ours,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is not for it
        )
    except OSError:
        pass
    else:
        threading.Thread(target=holder.wait, daemon=True).start()
    finally:
        os.close(ours)
    try:
        yield
    finally:
        os.close(theirs)
