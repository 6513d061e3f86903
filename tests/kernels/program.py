# SPDX-License-Identifier: Apache-2.0
"""A program whose allocations can be counted by hand; its argument says which part it plays.

It prints a line and waits for one in return: before its first allocation, so that a tracer has time to notice it on
kernels that announce a new interpreter late, and when its memory is there to be looked at.
"""

import ctypes
import os
import sys
import threading
from ctypes import byref, c_size_t, c_uint64

MIB = 1 << 20
TOO_MUCH = 1 << 40


class Properties(ctypes.Structure):
    """The beginning of CUmemAllocationProp: pinned memory (type 1) at a location of type 1, a device."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", 2 * ctypes.c_int)]


class Driver:
    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.attach()

    def attach(self) -> None:
        """A context for the calling thread."""
        context = c_uint64()
        self.call("cuDevicePrimaryCtxRetain", byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> int:
        """The address, or 0 if the driver refuses."""
        address = c_uint64()
        code = self._library.cuMemAlloc_v2(byref(address), c_size_t(size))
        return 0 if code else address.value

    def free(self, address: int) -> int:
        code: int = self._library.cuMemFree_v2(c_uint64(address))
        return code

    def call(self, name: str, *arguments: object) -> None:
        """A call that must succeed."""
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name}: CUDA error {code}")


class Layer:
    def __init__(self, driver: Driver, size: int) -> None:
        self.weights = driver.allocate(size)


class Model:
    """Three layers that stay, five activations that go, two requests that no device can meet."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.layers = [0] * 0

    def build(self) -> None:
        for _ in range(3):
            self.layers.append(Layer(self.driver, 4 * MIB).weights)

    def infer(self) -> None:
        addresses = []
        for _ in range(5):
            addresses.append(self.driver.allocate(MIB))  # noqa: PERF401 - a comprehension is a frame of its own in 3.11
        for address in addresses:
            self.driver.free(address)
        self.driver.free(self.layers[0] + 1)  # an address that the driver never gave

    def outgrow(self) -> None:
        for _ in range(2):
            self.driver.allocate(TOO_MUCH)

    def fork(self) -> None:
        """The child has memory of its own, and leaves it to its end."""
        child = os.fork()
        if child == 0:
            self.driver.attach()
            self.driver.allocate(2 * MIB)
            os._exit(0)
        os.waitpid(child, 0)
        say(f"forked {child}")


def say(text: str) -> None:
    print(text, flush=True)
    sys.stdin.readline()


def model(driver: Driver) -> None:
    one = Model(driver)
    one.build()
    one.infer()
    one.outgrow()
    one.fork()


def leave(driver: Driver) -> None:
    """Another program takes over the process."""
    driver.allocate(3 * MIB)
    say("done")
    os.execv(sys.executable, [sys.executable, __file__, "arrive"])


def arrive(driver: Driver) -> None:
    driver.allocate(6 * MIB)
    say("done")


def die(driver: Driver) -> None:
    """Two threads allocate; the process is killed while it waits."""
    thread = threading.Thread(target=lend, args=(driver,))
    thread.start()
    thread.join()
    driver.allocate(4 * MIB)
    say("done")


def lend(driver: Driver) -> None:
    driver.attach()
    for _ in range(3):
        driver.allocate(MIB)


def mix(driver: Driver) -> None:
    """Memory of several kinds. Of physical memory, one piece is released and mapped still, one is gone altogether."""
    address, memory = c_uint64(), ctypes.c_void_p()
    driver.call("cuMemAllocManaged", byref(address), c_size_t(8 * MIB), 1)
    driver.call("cuMemAllocHost_v2", byref(memory), c_size_t(MIB))
    driver.call("cuMemAllocAsync", byref(address), c_size_t(3 * MIB), None)
    driver.call("cuMemFreeAsync", address, None)
    physical(driver, 2 * MIB)
    driver.call("cuMemUnmap", physical(driver, 4 * MIB), c_size_t(4 * MIB))
    say("done")


def physical(driver: Driver, size: int) -> c_uint64:
    """Where memory is mapped whose handle is released already."""
    handle, address, zero = c_uint64(), c_uint64(), c_size_t(0)
    properties = Properties(type=1, location=(1, 0))
    driver.call("cuMemCreate", byref(handle), c_size_t(size), byref(properties), zero)
    driver.call("cuMemAddressReserve", byref(address), c_size_t(size), zero, zero, zero)
    driver.call("cuMemMap", address, c_size_t(size), zero, handle, zero)
    driver.call("cuMemRelease", handle)
    return address


PARTS = {"model": model, "leave": leave, "arrive": arrive, "die": die, "mix": mix}


def main() -> None:
    driver = Driver()
    say("here")
    PARTS[sys.argv[1]](driver)


if __name__ == "__main__":
    main()
