# SPDX-License-Identifier: Apache-2.0
"""The first process of a booted kernel: mounts what programs expect, runs one command, and switches the machine off.

The command's output goes to the second serial line, where nothing else writes; its errors go to the console.
Standard library only. The command and its environment are in /job.json.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

MOUNTS = {
    "/proc": "proc",
    "/sys": "sysfs",
    "/dev": "devtmpfs",
    "/sys/kernel/debug": "debugfs",
    "/sys/kernel/tracing": "tracefs",
    "/sys/fs/bpf": "bpf",
    "/sys/fs/cgroup": "cgroup2",
}
RESULT = "/dev/ttyS1"
RB_POWER_OFF = 0x4321FEDC


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for place, kind in MOUNTS.items():
        if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None):
            print(f"init: no {kind} on {place}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    print(f"init: up after {time.clock_gettime(time.CLOCK_BOOTTIME):.1f} s", file=sys.stderr, flush=True)
    job = json.loads(Path("/job.json").read_text())
    with Path(RESULT).open("wb", buffering=0) as result:
        code = subprocess.run(job["command"], env=job["environment"], stdout=result).returncode
    print(
        f"init: the command ended with {code} after {time.clock_gettime(time.CLOCK_BOOTTIME):.1f} s",
        file=sys.stderr,
        flush=True,
    )
    os.sync()
    libc.reboot(RB_POWER_OFF)


if __name__ == "__main__":
    main()
