# SPDX-License-Identifier: Apache-2.0
"""The service on a node in a process that holds nothing else: `gpuheap agent` becomes it when its settings are checked.

What reads a command line takes 20 MiB, which the process would keep as long as it lives.
"""

import json
import signal
import sys
import threading
from typing import Final

from gpuheap.node.log import set_up
from gpuheap.node.open_files import allow_many_open_files
from gpuheap.node.run import run
from gpuheap.node.settings import AgentSettings, SettingsError
from gpuheap.printable import printable
from gpuheap.stacks.display import Detail
from gpuheap.tracer.errors import TracerError

EXIT_ERROR: Final = 1


def main() -> int:
    given = json.loads(sys.argv[1])
    settings = AgentSettings(**{**given, "frames": Detail(given["frames"])})
    set_up()
    allow_many_open_files()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(settings, stop)
    except (SettingsError, TracerError) as error:
        print(printable(f"gpuheap: error: {error}"), file=sys.stderr)
        return EXIT_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
