# SPDX-License-Identifier: Apache-2.0
"""Where a control plane keeps what must not outlive it, and how that is removed, also after it was killed."""

import hashlib
import os
from pathlib import Path
from typing import Final

from localcloud.removal import remove_when_unused

CLEAR_SECONDS: Final = 5.0
"""The programs of a killed supervisor die just after it, and may still write."""

MEMORY_FILE_SYSTEM: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is private


def etcd_data(state: Path) -> Path:
    """Where etcd keeps the data of a state folder: in memory where that can be had.

    The name follows from the state folder, so that data left by a killed supervisor are found again.
    """
    if os.access(MEMORY_FILE_SYSTEM, os.W_OK | os.X_OK):
        key = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
        return MEMORY_FILE_SYSTEM / f"gpuheap-etcd-{os.getuid()}-{key}"
    return state / "etcd"


def clear(state: Path) -> None:
    """Remove what a control plane of this state folder, no longer running, kept in files. Logs stay."""
    for folder in (etcd_data(state), state / "control-plane"):
        remove_when_unused(folder, CLEAR_SECONDS)
    (state / "kubeconfig").unlink(missing_ok=True)
