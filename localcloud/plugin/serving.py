# SPDX-License-Identifier: Apache-2.0
"""Serves one plugin to the engine that started it.

The engine's contract: the first line on the standard output is the port; the plugin ends on SIGINT, and must not
outlive its engine, which may be killed before it can say so.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

WORKERS: Final = 32
MESSAGE_BYTES: Final = 400 << 20  # the engine's own limit, sdk/go/common/util/rpcutil
GRACE_SECONDS: Final = 2.0


def serve(register: Callable[[grpc.Server], object], stopping: Callable[[], object] = lambda: None) -> None:
    """Serve what `register` adds to the server until the engine ends it, or ends itself.

    `stopping` is called before the calls that still run are waited for. Must run in the main thread.
    """
    parent = os.getppid()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
    ]
    server = grpc.server(ThreadPoolExecutor(max_workers=WORKERS), options=options)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    threading.Thread(target=_set_at_the_end_of, args=(parent, stop), daemon=True).start()
    print(port, flush=True)
    stop.wait()
    stopping()
    server.stop(grace=GRACE_SECONDS).wait()


def _set_at_the_end_of(process: int, event: threading.Event) -> None:
    # Not PR_SET_PDEATHSIG: it tells of the end of the thread that started the plugin, and Go's threads come and go.
    try:
        handle = os.pidfd_open(process)
        if os.getppid() == process:  # otherwise it ended before, and the handle may be another's
            select.select([handle], [], [])
    except ProcessLookupError:
        pass
    event.set()
