# SPDX-License-Identifier: Apache-2.0
"""`python -m localcloud.plugin.copied SEARCH MODULE [ARGUMENT]…`: a plugin as a copy of the prepared Python
(`language/prepared.py`), for the engine that started this. Ends when the plugin does, and the plugin with it.

Imports nothing but Python's own library, so that it costs less than what it saves.
"""

import os
import signal
import sys
from pathlib import Path

from localcloud.plugin.language.prepared import VARIABLE, Program, RunningProgram


def main() -> int:
    search, module, *arguments = sys.argv[1:]
    program = RunningProgram(
        os.environ[VARIABLE],
        Program(
            module=module,
            search=search,
            arguments=arguments,
            environment=dict(os.environ),
            folder=str(Path.cwd()),
        ),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.killpg(program.pid, number))
    code = program.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
