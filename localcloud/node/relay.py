# SPDX-License-Identifier: Apache-2.0
"""Makes a port of a node's loopback network reachable on this machine's, under the same number."""

import asyncio
import socket
import threading
from contextlib import suppress

from localcloud.node.namespaces import enter_network

CHUNK = 1 << 16


class Relay:
    """Takes connections to 127.0.0.1:`port` here, and carries them to the same address in the network of `pid`.

    A thread of its own is in that network, and so are the connections that it makes; the listening socket is not.
    Raises OSError when the port is taken here.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._refused: list[OSError] = []
        self._connections: set[asyncio.Task[None]] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="relay", daemon=True)
        self._thread.start()
        started.wait()
        if self._refused:
            self.close()
            raise self._refused[0]

    def close(self) -> None:
        """End all connections and give the port back."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._listener.close()

    def _run(self, started: threading.Event) -> None:
        try:
            enter_network(self._pid)
        except OSError as error:
            self._refused.append(error)
            return
        finally:
            started.set()
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._carry, sock=self._listener)
        await self._stopping.wait()
        server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)  # the loop itself refers to it weakly
        task.add_done_callback(self._connections.discard)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:  # nobody listens there yet: refused, as far as a relay can say so
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        except asyncio.CancelledError:  # the relay ends; Python 3.11 would report it as an error
            writer.transport.abort()
            back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            return
    writer.transport.abort()
