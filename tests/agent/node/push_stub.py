# SPDX-License-Identifier: Apache-2.0
"""A push API that answers as it is told to, and keeps what it got: for answers that a healthy server never gives."""

import gzip
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

STORED: Final = (200, "{}")
NOT_PPROF: Final = (500, '{"code":"unknown","message":"copy to buffer: unexpected EOF"}')
RATE_LIMIT: Final = (429, '{"code":"resource_exhausted","message":"push rate limit (4.0 MiB) exceeded"}')
BAD_LABELS: Final = (400, '{"code":"invalid_argument","message":"invalid metric name"}')
NOT_READY: Final = (503, "not ready")
HANG_UP: Final = (0, "")
"""The connection is closed without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    path: str
    content_type: str
    body: Any


class PushStub:
    """`answers` are given one after the other, then 200. With `packed` answers are gzip, as a real server's can be."""

    def __init__(self, answers: Sequence[tuple[int, str]] = (), *, packed: bool = False) -> None:
        self.got: list[Got] = []
        self.hold = threading.Event()
        self.hold.set()
        self._answers = list(answers)
        self._packed = packed
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                stub.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Tests print what they need."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self._lock:
            self.got.append(
                Got(
                    path=request.path,
                    content_type=request.headers["Content-Type"],
                    body=json.loads(body),
                )
            )
            status, text = self._answers.pop(0) if self._answers else STORED
        self.hold.wait(30)
        if not status:
            return
        data = gzip.compress(text.encode()) if self._packed else text.encode()
        request.send_response(status)
        if self._packed:
            request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
