# SPDX-License-Identifier: Apache-2.0
"""`python -m verify` as a user runs it."""

import json
import subprocess
import sys
from typing import Any

from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT


def verified(cloud: LocalCloud, stack: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the results by check."""
    done = subprocess.run(
        [sys.executable, "-m", "verify", "--stack", stack, "--json"],
        cwd=CHECKOUT,
        env=cloud.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {row["check"]: row for row in json.loads(done.stdout)}
