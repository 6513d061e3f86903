# SPDX-License-Identifier: Apache-2.0
"""Lets the fault rules of the store act on HTTP requests, before they are answered or after they took effect."""

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localcloud.azure.arm import error_response
from localcloud.azure.errors import AzureError
from localcloud.azure.records import CUT_OFF, UNANSWERED, Fault, Json
from localcloud.azure.store import Store
from localcloud.kube import gateway


class Faulty:
    """An application that fails where the rules say so."""

    def __init__(self, application: ASGIApp, store: Store) -> None:
        self._application, self._store = application, store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Kubernetes' dry runs are no attempts: nothing fails there that is to fail later.
        if scope["type"] != "http" or b"dryRun=All" in scope["query_string"]:
            await self._application(scope, receive, send)
            return
        fault = await run_in_threadpool(self._store.take_fault, scope["method"], scope["path"])
        if fault is None:
            await self._application(scope, receive, send)
            return
        if fault.after:
            await self._application(scope, receive, _unheard)
        if fault.status == UNANSWERED:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if fault.status == CUT_OFF:
            # The server ends a connection on which less has been written than was promised.
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1024")]}
            )
            return
        await _response(fault, scope["path"])(scope, receive, send)


async def _unheard(message: Message) -> None:
    """The answer that gets lost."""


def _response(fault: Fault, path: str) -> Response:
    error = AzureError(fault.status, fault.code, fault.message, retry_after_seconds=fault.retry_after_seconds)
    response = error_response(error)
    if path.startswith(f"{gateway.PATH}/"):
        return JSONResponse(_kubernetes_status(fault), fault.status, _kept_headers(response))
    if path.startswith("/grafana/"):
        response = JSONResponse({"message": fault.message}, fault.status, _kept_headers(response))
    return response


def _kubernetes_status(fault: Fault) -> Json:
    """https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/"""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": fault.message,
        "reason": fault.code,
        "code": fault.status,
    }


def _kept_headers(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if not name.startswith("content-")}
