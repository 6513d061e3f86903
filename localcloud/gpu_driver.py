# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver for the demo's workload: the machine's own where there is a GPU, the tests' stand-in elsewhere."""

import os
import shutil
from pathlib import Path
from typing import Final

from gpuheap.tracer import Tracer, TracerError
from tests.standin.build import build


def lacking() -> str | None:
    """What this machine lacks to trace a process, None if nothing. Tries it: sets the probes and removes them."""
    if os.geteuid() != 0:
        return "tracing needs root"
    if not _has_gpu() and shutil.which("gcc") is None:
        return "there is no GPU, and no gcc to build the stand-in for its driver"
    try:
        Tracer().close()
    except TracerError as error:
        return str(error)
    return None


INIT_MILLISECONDS: Final = "200"
"""The stand-in's first call shall not be faster than any driver's: in that time the agent finds a driver new to it."""


def environment(folder: Path) -> dict[str, str]:
    """What the workload's environment must hold beside what is there; the stand-in is built into `folder`."""
    if _has_gpu():
        return {}
    return {**build(folder).environment(), "STANDIN_CUDA_INIT_MS": INIT_MILLISECONDS}


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()
