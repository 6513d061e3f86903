# SPDX-License-Identifier: Apache-2.0
"""HTTP on the metrics address: /metrics for Prometheus, /healthz and /readyz for the kubelet."""

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from gpuheap.node.settings import METRICS_ADDRESS, SettingsError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Check = Callable[[], str | None]
"""None when all is well, else what is wrong."""

_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")
_IDLE_SECONDS: Final = 10


class MetricsServer:
    """Serves in threads of its own while the context is open. Raises `SettingsError` when the address is taken."""

    def __init__(
        self, host: str, port: int, *, metrics: CollectorRegistry, healthy: Check, ready: Check
    ) -> None:
        self._metrics = make_wsgi_app(metrics)
        self._checks = {"/healthz": healthy, "/readyz": ready}
        try:
            self._server = make_server(host, port, self._answer, _Server, _Handler)
        except OSError as error:
            raise SettingsError(
                f"metrics address {host}:{port} cannot be served: {error.strerror} "
                f"(another one: --metrics-address or {METRICS_ADDRESS})"
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="gpuheap-metrics", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body: Iterable[bytes] = self._metrics(environ, start_response)
            return body
        check = self._checks.get(path)
        if check is None:
            start_response("404 Not Found", [_TEXT])
            return [b"there are /metrics, /healthz and /readyz\n"]
        problem = check()
        start_response("503 Service Unavailable" if problem else "200 OK", [_TEXT])
        return [f"{problem or 'ok'}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS  # a client that says nothing does not hold a thread for ever

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes and probes are no news."""
