# SPDX-License-Identifier: Apache-2.0
"""The process that demangles: a name a line from standard input, what it stands for a line to standard output.

It runs alone, without the rest of the package: see demangler.py.
"""

import ctypes
import os
import resource
import signal
import sys

MEMORY_BYTES = 256 << 20
MAX_ANSWER_BYTES = 64 << 10
NOBODY = 65534
PR_SET_PDEATHSIG = 1
"""Ended with its parent; prctl(2). Forgotten when the user changes, so it is set after that."""


def main() -> int:
    sys.path.append(sys.argv[1])
    from cxxfilt import Error, demangle  # type: ignore[import-untyped]

    _give_up_rights()
    _write("ready")
    for line in sys.stdin.buffer:
        name = line.rstrip(b"\n").decode(errors="replace")
        try:
            answer = demangle(name)
        except Error:
            answer = name
        _write(answer)
    return 0


def _write(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace")[:MAX_ANSWER_BYTES].replace(b"\n", b" ") + b"\n")
    sys.stdout.buffer.flush()


def _give_up_rights() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
