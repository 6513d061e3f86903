# SPDX-License-Identifier: Apache-2.0
"""Serves simulated Azure: Resource Manager and Grafana (HTTPS, one port), the identity endpoint, Pyroscope."""

import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from localcloud.azure import identity
from localcloud.azure.arm import ResourceManagerApi
from localcloud.azure.faulty import Faulty
from localcloud.azure.grafana import GrafanaApi
from localcloud.azure.identity import Tokens
from localcloud.azure.pyroscope import PyroscopeApi
from localcloud.azure.store import Store
from localcloud.kube import gateway

LOOPBACK: Final = "127.0.0.1"
PYROSCOPE_PORT: Final = 4040
START_SECONDS: Final = 20.0


class CannotServe(Exception):
    """A server did not start; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The addresses of what is served, until `stop` or the end of the context."""

    arm: str
    identity: str
    identity_header: str
    pyroscope: str
    running: Sequence["_Server"]

    def stop(self) -> None:
        for one in self.running:
            one.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(
    store: Store,
    *,
    tls_certificate: Path,
    tls_key: Path,
    kubernetes: ASGIApp | None = None,
    pyroscope_address: str,
    pyroscope_port: int = PYROSCOPE_PORT,
) -> Servers:
    """Start all servers in threads of this process. Raises CannotServe.

    `kubernetes` answers for the API server, where there is one. `pyroscope_address` is an IP address of this machine
    that plays Pyroscope's ClusterIP.
    """
    tokens, header = Tokens(key=secrets.token_bytes(32)), secrets.token_urlsafe(24)
    azure = Starlette(
        routes=[
            Mount("/grafana", routes=GrafanaApi(store, tokens).routes),
            *([Mount(gateway.PATH, kubernetes)] if kubernetes else []),
            *ResourceManagerApi(store, tokens).routes,
        ]
    )
    arm_socket, identity_socket = _listen(LOOPBACK, 0), _listen(LOOPBACK, 0)
    pyroscope_socket = _listen(pyroscope_address, pyroscope_port)
    tls = {"ssl_certfile": str(tls_certificate), "ssl_keyfile": str(tls_key)}
    running = [
        _Server(Faulty(azure, store), arm_socket, **tls),
        _Server(identity.application(tokens, header), identity_socket),
        _Server(Faulty(Starlette(routes=PyroscopeApi(store).routes), store), pyroscope_socket),
    ]
    for one in running:
        one.wait()
    arm_port, identity_port = arm_socket.getsockname()[1], identity_socket.getsockname()[1]
    return Servers(
        arm=f"https://{LOOPBACK}:{arm_port}",
        identity=f"http://{LOOPBACK}:{identity_port}/identity",
        identity_header=header,
        pyroscope=f"http://{pyroscope_address}:{pyroscope_socket.getsockname()[1]}",
        running=running,
    )


class _Server:
    """One uvicorn in a thread."""

    def __init__(self, application: ASGIApp, listening: socket.socket, **tls: str) -> None:
        config = uvicorn.Config(application, log_level="warning", lifespan="off", access_log=False, **tls)  # type: ignore[arg-type]
        self._server, self._where = uvicorn.Server(config), listening.getsockname()
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it answers."""
        pause = threading.Event()
        waited = 0.0
        while not self._server.started:
            if not self._thread.is_alive() or waited > START_SECONDS:
                raise CannotServe(f"the server at {self._where} did not start; its error is above")
            pause.wait(0.01)
            waited += 0.01

    def stop(self) -> None:
        # Idle connections of clients are not waited for; with TLS each would take its time-out.
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


def _listen(address: str, port: int) -> socket.socket:
    """A listening socket at that port; 0 is any."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
    except OSError as error:
        listening.close()
        raise CannotServe(f"cannot listen at {address}:{port}: {error}") from error
    return listening
