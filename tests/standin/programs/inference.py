# SPDX-License-Identifier: Apache-2.0
"""A small inference server that holds GPU memory the way real ones do: weights, a cache, work space, and one leak.

It calls the driver through ctypes, prints `ready` when it has its memory, and ends when its input does.
"""

import ctypes
import sys

MIB = 1 << 20


class Device:
    """The driver, as a framework's allocator uses it."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._check(self._driver.cuInit(0))
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self._check(self._driver.cuCtxSetCurrent(context))

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._check(self._driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        return address.value

    def free(self, address: int) -> None:
        self._check(self._driver.cuMemFree_v2(ctypes.c_uint64(address)))

    @staticmethod
    def _check(result: int) -> None:
        if result:
            raise RuntimeError(f"CUDA error {result}")


class Linear:
    def __init__(self, device: Device, inputs: int, outputs: int) -> None:
        self.weight = device.allocate(2 * inputs * outputs)


class Attention:
    def __init__(self, device: Device, width: int) -> None:
        self.query_key_value = Linear(device, width, 3 * width)
        self.output = Linear(device, width, width)


class FeedForward:
    def __init__(self, device: Device, width: int) -> None:
        self.up = Linear(device, width, 4 * width)
        self.down = Linear(device, 4 * width, width)


class Block:
    def __init__(self, device: Device, width: int) -> None:
        self.attention = Attention(device, width)
        self.feed_forward = FeedForward(device, width)


class Model:
    """A transformer's weights."""

    def __init__(self, device: Device, *, width: int, depth: int) -> None:
        self.embedding = device.allocate(2 * 32_000 * width)
        self.blocks = [Block(device, width) for _ in range(depth)]


class KeyValueCache:
    """Pages for the keys and values of every token in flight."""

    def __init__(self, device: Device, *, pages: int, page_bytes: int) -> None:
        self.pages = [self._page(device, page_bytes) for _ in range(pages)]

    def _page(self, device: Device, size: int) -> int:
        return device.allocate(size)


class Server:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.model = Model(device, width=2048, depth=12)
        self.cache = KeyValueCache(device, pages=64, page_bytes=16 * MIB)
        self.sessions: list[int] = []

    def handle(self, request: int) -> None:
        activations = [self.device.allocate(8 * MIB) for _ in range(4)]
        self.remember_session(request)
        for address in activations:
            self.device.free(address)

    def remember_session(self, _request: int) -> None:
        """The leak: nothing ever removes a session."""
        self.sessions.append(self.device.allocate(2 * MIB))


def main() -> None:
    server = Server(Device())
    for request in range(40):
        server.handle(request)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
