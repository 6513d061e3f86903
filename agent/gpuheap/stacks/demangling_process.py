# SPDX-License-Identifier: Apache-2.0
"""The process that demangles: a name a line from standard input, what it stands for a line to standard output.

It runs alone, with no more of Python's library than it needs, as somebody waits for it to start: see demangler.py.
"""

import ctypes
import os
import resource
import sys

LIBRARY = "libstdc++.so.6"
MEMORY_BYTES = 256 << 20
MAX_ANSWER_BYTES = 64 << 10
NOBODY = 65534
SIGKILL = 9
CAPABILITY_VERSION_3 = 0x20080522
PR_SET_NO_NEW_PRIVS = 38
PR_SET_PDEATHSIG = 1
"""Ended with its parent; prctl(2). Forgotten when the user changes, so it is set after that."""


def main() -> int:
    library, libc = ctypes.CDLL(LIBRARY), ctypes.CDLL(None)
    demangle = library["__cxa_demangle"]
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    demangle.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    _give_up_rights(libc)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    _write(b"ready")
    for line in sys.stdin.buffer:
        name = line.rstrip(b"\n")
        found = demangle(name, None, None, None)
        _write(ctypes.string_at(found) if found else name)
        libc.free(found)
    return 0


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line[:MAX_ANSWER_BYTES] + b"\n")
    sys.stdout.buffer.flush()


def _give_up_rights(libc: ctypes.CDLL) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError:
            pass  # a container's root that may not change its user; then the capabilities are few, and go next
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())


if __name__ == "__main__":
    sys.exit(main())
