# SPDX-License-Identifier: Apache-2.0
"""A traced program with figures that are known by hand."""

from pathlib import Path

import pytest

from tests.standin.build import StandIn, build

PROGRAM = """\
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
context = ctypes.c_void_p()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
held = []


class Cache:
    def grow(self, size):
        address = ctypes.c_uint64()
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if result == 0:
            held.append(address)

    def nest(self, depth):
        if depth:
            self.nest(depth - 1)
        else:
            self.grow(3 << 20)


def load():
    cache = Cache()
    for _ in range(10):
        cache.grow(64 << 20)
    cache.nest(3)
    for address in held[:4]:
        cuda.cuMemFree_v2(address)
    cache.grow(1 << 50)  # more than there is


load()
try:  # Ctrl-C may come as soon as the line is read
    print("ready", flush=True)
    if "wait" in sys.argv:
        sys.stdin.read()
except KeyboardInterrupt:
    sys.stdin.read()
if "free" in sys.argv:
    for address in held[4:]:
        cuda.cuMemFree_v2(address)
sys.exit(7)
"""
MIB = 1 << 20
IN_USE = (7, 387 * MIB)
ALLOCATED = (11, 643 * MIB)
"""Objects and bytes: 10 times 64 MiB and once 3 MiB; 4 times 64 MiB freed."""


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "serve.py"
    path.write_text(PROGRAM)
    return path
