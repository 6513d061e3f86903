# SPDX-License-Identifier: Apache-2.0
"""Allocates from all sorts of Python functions, and prints who called, as the interpreter itself says.

Each allocation has a size of its own. The line printed is JSON: by size, the callers of `allocate` from the innermost
on, each a function, a file and a line. Then it waits for the end of its input. Runs on CPython 3.8 and newer.
"""

import asyncio
import ctypes
import functools
import json
import marshal
import sys
import threading

DEEP = 200
AGAIN = 90
MANY_THREADS = 150

driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
callers = {}
lock = threading.Lock()


def functions(frame):
    while frame is not None:
        code = frame.f_code
        yield getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno
        frame = frame.f_back


def allocate():
    with lock:
        size = 1000 + len(callers)
        callers[size] = list(functions(sys._getframe(1)))
    driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))  # the allocation


class Model:
    allocate()

    def __init__(self):
        allocate()
        [self.layer(n) for n in range(2)]

    def layer(self, number):
        def inner(*, really=True):
            if really:
                allocate()

        inner(
            really=bool(number),
        )

    @property
    def weight(self):
        return allocate()

    @classmethod
    def build(cls):
        try:
            raise ValueError
        except ValueError:
            allocate()
        finally:
            allocate()

    def __getattr__(self, name):
        allocate()


def generator():
    allocate()
    yield 1
    allocate()


def delegating():
    yield from generator()


async def leaf():
    allocate()
    await asyncio.sleep(0)
    allocate()


async def branch():
    await leaf()


async def ticking():
    yield 1
    await branch()


async def trunk():
    await asyncio.gather(branch(), asyncio.ensure_future(leaf()))
    async for _ in ticking():
        allocate()


def down(depth):
    if depth:
        down(depth - 1)
    else:
        allocate()


def by_c(_):
    list(map(lambda _: allocate(), [1]))  # noqa: C417 - C is meant to call


def in_thread(barrier):
    driver.cuCtxSetCurrent(context)
    barrier.wait()  # all of them are there
    by_c(1)
    barrier.wait()


class Text(str):
    pass


NAMES = (
    "latin_é",
    "bmp_名前",
    "astral_😀",
    "a\nb",
    "cut_" + "n" * 400,
    "cut_" + "名" * 300,
    "cut_" + "😀" * 100,
)
NOT_UTF8 = b"/p/\xff\xfe.py".decode("utf-8", "surrogateescape")
FILES = (NOT_UTF8, Text("/of/a/subclass.py"), "/é/" + "d" * 300 + "/f.py")


def named(name, file="<generated>"):
    """A function of this name in this file, whatever they are."""
    code = compile("def f():\n    allocate()\n", file, "exec").co_consts[0]
    names = {"co_name": name}
    if hasattr(code, "co_qualname"):
        names["co_qualname"] = name
    return type(named)(code.replace(**names), globals())


def again():
    """Functions that differ in their lines only, each, with most allocators, where an earlier one was."""
    sources = ["def f():" + "\n" * line + "    allocate()\n" for line in (1, 2, 3)]
    stored = [marshal.dumps(compile(source, "<again>", "exec")) for source in sources]
    for number in range(AGAIN):
        space = {"allocate": allocate}
        exec(marshal.loads(stored[number % 3]), space)
        space["f"]()
        del space


def main():
    model = Model()
    model.weight  # noqa: B018 - its getter allocates
    Model.build()
    model.missing  # noqa: B018
    for _ in delegating():
        list(allocate() for _ in range(1))  # noqa: C400 - a generator is meant
    asyncio.run(trunk())
    sorted([1], key=by_c)
    functools.partial(by_c, 1)()
    down(DEEP)
    for name in NAMES:
        named(name)()
    for file in FILES:
        named("f", file)()
    again()
    barrier = threading.Barrier(MANY_THREADS)
    threads = [threading.Thread(target=in_thread, args=(barrier,)) for _ in range(MANY_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
print(json.dumps(callers), flush=True)
sys.stdin.readline()
