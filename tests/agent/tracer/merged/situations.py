# SPDX-License-Identifier: Apache-2.0
"""Calls the driver from Python through C in several ways, and prints who called, as the interpreter itself says.

Each allocation has a size and a title of its own. The line printed is JSON: by size, the title and the functions from
the innermost on, each a name, a file and a line. Then it waits for the end of its input. `relay` is relay.c, built for
this interpreter, in the folder that the environment names. Runs on CPython 3.8 and newer.
"""

import asyncio
import ctypes
import functools
import json
import os
import sys
import threading

sys.path.insert(0, os.environ["RELAY"])
import relay

driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
found = {}


def note(title, frame):
    """Keeps who calls, and tells the size that stands for it."""
    size = 1000 + len(found)
    functions = []
    while frame is not None:
        code = frame.f_code
        functions.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    found[size] = title, functions
    return ctypes.c_size_t(size)


def allocate(title):
    driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), note(title, sys._getframe()))


def native(title):
    relay.allocate(note(title, sys._getframe()).value)


class Model:
    allocate("in a class body")

    def __init__(self):
        self.build()

    def build(self):
        native("an extension's own call, from a constructor")

    @property
    def weight(self):
        return allocate("a property")


def recursive(depth):
    if depth:
        recursive(depth - 1)
    else:
        relay.call(lambda: allocate("Python again, called by an extension, below ten functions"))


def key(_):
    return list(map(lambda _: native("an extension's call, in map, in sorted"), [1]))  # noqa: C417


def numbers():
    allocate("a generator that C drives")
    yield 1


def delegating():
    yield from numbers()


async def leaf():
    allocate("a coroutine")
    await asyncio.sleep(0)
    allocate("a coroutine that was resumed")


async def branch():
    await leaf()


async def ticking():
    await branch()
    yield 1


async def trunk():
    await asyncio.gather(branch())
    async for _ in ticking():
        allocate("behind an asynchronous generator")


def in_thread():
    driver.cuCtxSetCurrent(context)
    sorted([1], key=lambda _: allocate("a thread"))


def main():
    allocate("ctypes")
    Model().weight  # noqa: B018 - its getter allocates
    recursive(10)
    sorted([1], key=key)
    list(delegating())
    for _ in delegating():
        functools.partial(native, "a partial function")()
    asyncio.run(trunk())
    callback = ctypes.CFUNCTYPE(None)(lambda: allocate("a callback of ctypes"))
    callback()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


main()
print(json.dumps(found), flush=True)
sys.stdin.readline()
