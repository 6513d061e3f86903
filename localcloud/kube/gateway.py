# SPDX-License-Identifier: Apache-2.0
"""The API server, once more, at an address where fault rules act on it (`azure/faulty.py`).

Whoever is to go through it gets a kubeconfig that says so (`through`). Passes every request on as it came, and every
answer as it comes, watches too; knows nothing of Kubernetes. Not here: connections that become another protocol, as
those of `kubectl exec`.
"""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import yaml
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

PATH: Final = "/kubernetes"
"""Where it is mounted."""

# RFC 9110, section 7.6.1: of the connection, not of the message. The length of what is passed on in parts is not known.
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)


class Gateway:
    """An application for the API server at `url`, whose certificate `authority` signed."""

    def __init__(self, url: str, authority: Path) -> None:
        self._url, self._authority = url, authority
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._passed_on(Request(scope, receive))
        await response(scope, receive, send)

    async def _passed_on(self, request: Request) -> Response:
        client = self._connected()
        path = request.scope["raw_path"].decode("ascii").removeprefix(PATH)
        query = request.scope["query_string"].decode("ascii")
        sent = client.build_request(
            request.method,
            f"{self._url}{path}" + (f"?{query}" if query else ""),
            headers=[
                (name, value)
                for name, value in request.headers.items()
                if name.lower() not in _OF_THE_CONNECTION
            ],
            content=await request.body(),
        )
        try:
            answer = await client.send(sent, stream=True)
        except httpx.TransportError as error:
            return Response(f"the API server at {self._url} cannot be reached: {error}", 502)
        response = StreamingResponse(_content(answer), answer.status_code)
        response.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.decode("latin-1").lower() not in _OF_THE_CONNECTION
        ]
        return response

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:  # made in the event loop that uses it
            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=str(self._authority)),
                timeout=httpx.Timeout(None),  # a watch is silent as long as nothing happens
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
            )
        return self._client


async def _content(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw():
            yield part
    finally:
        await answer.aclose()


def through(kubeconfig: str, arm: str) -> str:
    """The kubeconfig with the gateway that is served at `arm` as the server of each of its clusters."""
    config = yaml.safe_load(kubeconfig)
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = f"{arm}{PATH}"
    return yaml.safe_dump(config, sort_keys=False)
