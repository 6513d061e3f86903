# SPDX-License-Identifier: Apache-2.0
"""Azure Resource Manager over HTTPS, as far as programs call it beside the provider.

They read anything, decide about private endpoint connections, remove Private Link Services, and make, remove and
refresh Grafana's private endpoints.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from localcloud.azure import arm_endpoints, private_link, shapes
from localcloud.azure.errors import AzureError, not_found
from localcloud.azure.identity import Tokens
from localcloud.azure.known_types import knowledge_of
from localcloud.azure.records import Json, Resource
from localcloud.azure.store import Store
from localcloud.azure.types_grafana import WORKSPACE

ACTOR: Final = "arm"
AUDIENCES: Final = frozenset({"https://management.azure.com", "https://management.core.windows.net"})
CONNECTION_SEGMENT: Final = f"/{private_link.CONNECTIONS}/".lower()
SERVICE_SEGMENT: Final = "/microsoft.network/privatelinkservices/"
POLLS: Final = 1
"""How often an operation is asked for before it is done."""

POLL_SECONDS: Final = 1


@dataclass(slots=True)
class _Operation:
    """A long-running operation; `finish` is run when it ends."""

    finish: Callable[[], None]
    polls_left: int = POLLS
    done: bool = False


class ResourceManagerApi:
    """The routes of Resource Manager over a store."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens
        self._operations: dict[str, _Operation] = {}
        self._operations_lock = threading.Lock()

    @property
    def routes(self) -> list[BaseRoute]:
        return [Route("/{path:path}", self._answer, methods=["GET", "PUT", "POST", "PATCH", "DELETE"])]

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        content = await request.json() if body else {}
        return await run_in_threadpool(self._checked, request, content)

    def _checked(self, request: Request, body: Json) -> Response:
        try:
            self._tokens.caller(request, AUDIENCES)
            if not request.query_params.get("api-version"):
                raise AzureError(
                    400,
                    "MissingApiVersionParameter",
                    "The api-version query parameter (?api-version=) is required.",
                )
            return self._dispatch(request, request.url.path.rstrip("/"), body)
        except AzureError as error:
            return error_response(error)

    def _dispatch(self, request: Request, path: str, body: Json) -> Response:
        connection = CONNECTION_SEGMENT in path.lower()
        match request.method:
            case "GET" if "/operationStatuses/" in path:
                return self._operation_status(path)
            case "GET" if connection:
                return JSONResponse(_connection_body(private_link.connection_of(self._store, path)))
            case "GET":
                return self._read(path)
            case "PUT" if connection:
                state = body.get("properties", {}).get(private_link.STATE, {})
                return JSONResponse(
                    _connection_body(private_link.set_state(self._store, path, state, actor=ACTOR))
                )
            case "DELETE" if connection:
                removed = private_link.remove_connection(self._store, path, actor=ACTOR)
                return Response(status_code=200 if removed else 204)
            case "PUT" if arm_endpoints.is_endpoint(path):
                base = f"{request.base_url}".rstrip("/")
                made = arm_endpoints.put(self._store, path, body, arm=lambda: base, actor=ACTOR)
                return JSONResponse(self._body(made), 201)
            case "DELETE" if arm_endpoints.is_endpoint(path):
                arm_endpoints.delete(self._store, path, actor=ACTOR)
                return Response(status_code=204)
            case "DELETE" if SERVICE_SEGMENT in path.lower():
                return self._remove_service(path)
            case "POST" if path.lower().endswith("/refreshmanagedprivateendpoints"):
                return self._refresh(request, path.rpartition("/")[0])
        raise AzureError(501, "NotSimulated", f"{request.method} {path} is not simulated by the local cloud.")

    def _read(self, path: str) -> Response:
        resource = self._store.resource(path)
        if resource is not None:
            return JSONResponse(self._body(resource))
        service = self._store.resource(path.rpartition("/")[0])
        if path.lower().endswith(f"/{private_link.CONNECTIONS}".lower()) and service is not None:
            connections = service.outputs.get(private_link.CONNECTIONS) or ()
            return JSONResponse({"value": [_connection_body(one) for one in connections]})
        # `.../managedPrivateEndpoints`: all of a type in one place.
        if len(path.split("/")) % 2 == 0 and "/resourcegroups/" in path.lower():
            inside = [
                one
                for one in self._store.resources(under=path)
                if one.id.rpartition("/")[0].lower() == path.lower()
            ]
            return JSONResponse({"value": [self._body(one) for one in inside]})
        raise not_found(path)

    def _remove_service(self, path: str) -> Response:
        service = self._store.resource(path)
        if service is None:
            return Response(status_code=204)
        known = knowledge_of(service.token)
        assert known is not None
        known.deletable(service, self._store)
        self._store.delete_resource(path, actor=ACTOR)
        return Response(status_code=200)

    def _body(self, resource: Resource) -> Json:
        known = knowledge_of(resource.token)
        shown = known.view(resource, self._store) if known else resource.outputs
        return shapes.arm_body(Resource(id=resource.id, token=resource.token, outputs=shown))

    def _refresh(self, request: Request, workspace_id: str) -> Response:
        workspace = self._store.resource(workspace_id)
        if workspace is None or workspace.token != WORKSPACE:
            raise not_found(workspace_id)
        number = str(uuid.uuid4())
        operation = _Operation(lambda: private_link.refresh(self._store, workspace.id, actor=ACTOR))
        with self._operations_lock:
            self._operations[number] = operation
        subscription, location = workspace.id.split("/")[2], workspace.outputs.get("location", "")
        place = f"/subscriptions/{subscription}/providers/Microsoft.Dashboard/locations/{location}"
        version = request.query_params["api-version"]
        url = f"{request.base_url}".rstrip("/") + f"{place}/operationStatuses/{number}?api-version={version}"
        headers = {"Azure-AsyncOperation": url, "Retry-After": str(POLL_SECONDS)}
        return Response(status_code=202, headers=headers)

    def _operation_status(self, path: str) -> Response:
        number = path.rpartition("/")[2]
        with self._operations_lock:
            operation = self._operations.get(number)
            if operation is None:
                raise not_found(path)
            running = operation.polls_left > 0
            operation.polls_left -= 1
            if not running and not operation.done:
                operation.finish()
                operation.done = True
        answer = {"id": path, "name": number, "status": "InProgress" if running else "Succeeded"}
        return JSONResponse(answer, headers={"Retry-After": str(POLL_SECONDS)} if running else None)


def error_response(error: AzureError) -> JSONResponse:
    """An error in Resource Manager's form."""
    headers = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:
        headers["WWW-Authenticate"] = f'Bearer error="invalid_token", error_description="{error.message}"'
    return JSONResponse({"error": {"code": error.code, "message": error.message}}, error.status, headers)


def _connection_body(connection: Json) -> Json:
    return shapes.arm_body(
        Resource(
            id=connection["id"],
            token="",
            outputs={key: one for key, one in connection.items() if key != "id"},
        )
    )
