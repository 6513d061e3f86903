# SPDX-License-Identifier: Apache-2.0
"""What the service's process has loaded: it runs on every node for as long as the node does."""

import subprocess
import sys


def test_the_service_holds_nothing_of_what_reads_a_command_line() -> None:
    code = "import sys, gpuheap.node.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "pydantic"} & set(done.stdout.split())
