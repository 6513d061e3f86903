# SPDX-License-Identifier: Apache-2.0
"""Grafana 11's HTTP API for each workspace, below `/grafana/<workspace>`: data sources, dashboards, folders, health.

https://grafana.com/docs/grafana/v11.6/developers/http_api/. Who may do what follows from role assignments, as in Azure
Managed Grafana.
"""

import html
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from localcloud.azure.errors import AzureError
from localcloud.azure.grafana_content import (
    ACTOR,
    DASHBOARDS,
    FOLDERS,
    SOURCES,
    Refused,
    base_path,
    check_complete,
    checked_uid,
    dashboard_meta,
    made_up_uid,
    next_number,
    now,
    slug_of,
    source_answer,
    source_as_shown,
)
from localcloud.azure.grafana_folders import Folders
from localcloud.azure.grafana_health import data_source_health
from localcloud.azure.grafana_queries import results
from localcloud.azure.identity import Tokens
from localcloud.azure.knowledge import guid
from localcloud.azure.records import GrafanaObject, Json, Resource
from localcloud.azure.store import Store
from localcloud.azure.types_basic import ROLE_ASSIGNMENT
from localcloud.azure.types_grafana import WORKSPACE, is_reached

AUDIENCES: Final = frozenset({"ce34e7e5-485f-4d76-964f-b3d2b16d1e4f"})
"""The application "Azure Managed Grafana": https://learn.microsoft.com/azure/managed-grafana/how-to-api-calls"""

# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/monitor
ADMIN: Final = "22926164-76b3-42b3-bc55-97df8dab3e41"
EDITOR: Final = "a79a5197-3a5c-4973-a920-486035ffd60f"
VIEWER: Final = "60921a7e-fef1-4a43-9b16-a26c52ad4769"
ADMINS: Final = frozenset({ADMIN})
EDITORS: Final = ADMINS | {EDITOR}
READERS: Final = EDITORS | {VIEWER}

Handler = Callable[[Resource, Request, Json], Response]


class GrafanaApi:
    """The routes of all workspaces over a store."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens

    @property
    def routes(self) -> list[BaseRoute]:
        folders = Folders(self._store)
        return [
            Route("/{workspace}/api/health", self._handler(self._health, None)),
            self._route("GET", "/datasources", self._sources, ADMINS),
            self._route("POST", "/datasources", self._add_source, ADMINS),
            self._route("GET", "/datasources/uid/{uid}", self._source, ADMINS),
            self._route("PUT", "/datasources/uid/{uid}", self._change_source, ADMINS),
            self._route("DELETE", "/datasources/uid/{uid}", self._remove_source, ADMINS),
            self._route("GET", "/datasources/uid/{uid}/health", self._source_health, READERS),
            self._route("POST", "/dashboards/db", self._save_dashboard, EDITORS),
            self._route("GET", "/dashboards/uid/{uid}", self._dashboard, READERS),
            self._route("DELETE", "/dashboards/uid/{uid}", self._remove_dashboard, EDITORS),
            self._route("GET", "/folders", folders.all, READERS),
            self._route("POST", "/folders", folders.add, EDITORS),
            self._route("GET", "/folders/{uid}", folders.one, READERS),
            self._route("PUT", "/folders/{uid}", folders.change, EDITORS),
            self._route("DELETE", "/folders/{uid}", folders.remove, EDITORS),
            self._route("GET", "/folders/{uid}/permissions", folders.permissions, ADMINS),
            self._route("POST", "/folders/{uid}/permissions", folders.set_permissions, ADMINS),
            self._route("POST", "/ds/query", self._query, READERS),
            Route("/{workspace}/d/{uid}", self._handler(self._page, READERS)),
        ]

    def _route(self, method: str, path: str, handler: Handler, roles: frozenset[str]) -> BaseRoute:
        return Route(f"/{{workspace}}/api{path}", self._handler(handler, roles), methods=[method])

    def _handler(
        self, handler: Handler, roles: frozenset[str] | None
    ) -> Callable[[Request], Awaitable[Response]]:
        def answer(request: Request, body: Json) -> Response:
            try:
                workspace = self._workspace(request.path_params["workspace"])
                if not is_reached(workspace, self._store):
                    raise Refused(403, f"Public network access of {workspace.name} is disabled.")
                if roles is not None:
                    self._authorize(request, workspace, roles)
                return handler(workspace, request, body)
            except Refused as refused:
                return JSONResponse(refused.content, refused.status_code)

        async def endpoint(request: Request) -> Response:
            try:
                body = await request.json() if await request.body() else {}
            except ValueError:
                return JSONResponse({"message": "bad request data"}, 400)
            return await run_in_threadpool(answer, request, body)

        return endpoint

    def _workspace(self, name: str) -> Resource:
        for workspace in self._store.resources(token=WORKSPACE):
            if workspace.name.lower() == name.lower():
                return workspace
        raise Refused(404, f"there is no workspace {name}")

    def _authorize(self, request: Request, workspace: Resource, roles: frozenset[str]) -> None:
        try:
            caller = self._tokens.caller(request, AUDIENCES)
        except AzureError as error:
            raise Refused(401, f"Unauthorized: {error.message}") from error
        held = {
            str(assignment.outputs.get("roleDefinitionId", "")).rpartition("/")[2].lower()
            for assignment in self._store.resources(token=ROLE_ASSIGNMENT)
            if assignment.outputs.get("principalId") == caller
            and f"{workspace.id}/".lower().startswith(
                f"{str(assignment.outputs.get('scope', '')).rstrip('/')}/".lower()
            )
        }
        if not held & roles:
            raise Refused(
                403,
                "You'll need additional permissions to perform this action.",
                accessErrorId=guid(caller)[:12],
            )

    # Health

    def _health(self, workspace: Resource, request: Request, body: Json) -> Response:
        version = workspace.outputs.get("properties", {}).get("grafanaVersion", "")
        return JSONResponse({"commit": "local", "database": "ok", "version": version})

    # Queries and pages

    def _query(self, workspace: Resource, request: Request, body: Json) -> Response:
        """As dashboards ask: each query of the body on its own data source."""
        return JSONResponse({"results": results(body, workspace, self._store)})

    def _page(self, workspace: Resource, request: Request, body: Json) -> Response:
        """The page of a dashboard: that there is one, not what it draws."""
        found = self._known(workspace, DASHBOARDS, request, "Dashboard not found")
        title = html.escape(found.body["dashboard"]["title"])
        return HTMLResponse(f"<!doctype html><title>{title} - Grafana</title>")

    # Data sources

    def _sources(self, workspace: Resource, request: Request, body: Json) -> Response:
        return JSONResponse([one.body for one in self._store.grafana_objects(workspace.id, SOURCES)])

    def _source(self, workspace: Resource, request: Request, body: Json) -> Response:
        return JSONResponse(self._known_source(workspace, request).body)

    def _add_source(self, workspace: Resource, request: Request, body: Json) -> Response:
        check_complete(body)
        uid = checked_uid(body.get("uid") or made_up_uid())
        there = self._store.grafana_objects(workspace.id, SOURCES)
        if any(one.body["name"] == body["name"] for one in there):
            raise Refused(409, "data source with the same name already exists")
        if any(one.uid == uid for one in there):
            raise Refused(409, "data source with the same uid already exists")
        source = source_as_shown(
            {**body, "uid": uid}, number=next_number(one.body["id"] for one in there), version=1
        )
        self._save(workspace, SOURCES, uid, source)
        return JSONResponse(source_answer(source, "Datasource added"))

    def _change_source(self, workspace: Resource, request: Request, body: Json) -> Response:
        old = self._known_source(workspace, request)
        check_complete(body)
        if old.body["readOnly"]:
            raise Refused(403, "Cannot update read-only data source")
        if body.get("version") and body["version"] < old.body["version"]:
            raise Refused(
                409, "Datasource has already been updated by someone else. Please reload and try again"
            )
        others = [one for one in self._store.grafana_objects(workspace.id, SOURCES) if one.uid != old.uid]
        if any(one.body["name"] == body["name"] for one in others):
            raise Refused(409, "data source with the same name already exists")
        uid = checked_uid(body.get("uid") or old.uid)
        source = source_as_shown({**body, "uid": uid}, number=old.body["id"], version=old.body["version"] + 1)
        if uid != old.uid:
            self._store.delete_grafana_object(old, actor=ACTOR)
        self._save(workspace, SOURCES, uid, source)
        return JSONResponse(source_answer(source, "Datasource updated"))

    def _remove_source(self, workspace: Resource, request: Request, body: Json) -> Response:
        old = self._known_source(workspace, request)
        if old.body["readOnly"]:
            raise Refused(403, "Cannot delete read-only data source")
        self._store.delete_grafana_object(old, actor=ACTOR)
        return JSONResponse({"id": old.body["id"], "message": "Data source deleted"})

    def _source_health(self, workspace: Resource, request: Request, body: Json) -> Response:
        source = self._known_source(workspace, request)
        problem = data_source_health(source.body, workspace, self._store)
        if problem:
            return JSONResponse({"message": problem, "status": "ERROR"}, 400)
        return JSONResponse({"message": "Data source is working", "status": "OK"})

    def _known_source(self, workspace: Resource, request: Request) -> GrafanaObject:
        return self._known(workspace, SOURCES, request, "Data source not found")

    # Dashboards

    def _save_dashboard(self, workspace: Resource, request: Request, body: Json) -> Response:
        dashboard = body.get("dashboard")
        if not isinstance(dashboard, dict):
            raise Refused(400, "bad request data")
        if not str(dashboard.get("title") or "").strip():
            raise Refused(400, "Dashboard title cannot be empty", status="empty-name")
        there = {one.uid: one for one in self._store.grafana_objects(workspace.id, DASHBOARDS)}
        folder = body.get("folderUid") or ""
        if folder and self._store.grafana_object(workspace.id, FOLDERS, folder) is None:
            raise Refused(400, "folder not found", status="not-found")
        old = self._saved_before(dashboard, there)
        uid = checked_uid(old.uid if old else dashboard.get("uid") or made_up_uid())
        if old and not body.get("overwrite") and dashboard.get("version") != old.body["dashboard"]["version"]:
            raise Refused(412, "The dashboard has been changed by someone else", status="version-mismatch")
        number = (
            old.body["dashboard"]["id"]
            if old
            else next_number(one.body["dashboard"]["id"] for one in there.values())
        )
        version = old.body["dashboard"]["version"] + 1 if old else 1
        saved = {**dashboard, "uid": uid, "id": number, "version": version}
        made = old.body["meta"]["created"] if old else now()
        self._save(
            workspace, DASHBOARDS, uid, {"dashboard": saved, "meta": dashboard_meta(saved, folder, made)}
        )
        slug = slug_of(saved["title"])
        return JSONResponse(
            {
                "folderUid": folder,
                "id": number,
                "slug": slug,
                "status": "success",
                "uid": uid,
                "url": f"{base_path(workspace)}/d/{uid}/{slug}",
                "version": version,
            }
        )

    def _saved_before(self, dashboard: Json, there: dict[str, GrafanaObject]) -> GrafanaObject | None:
        """The dashboard that is meant: by its number, or by its uid."""
        number = dashboard.get("id")
        if number:
            for one in there.values():
                if one.body["dashboard"]["id"] == number:
                    return one
            raise Refused(404, "Dashboard not found", status="not-found")
        return there.get(str(dashboard.get("uid")))

    def _dashboard(self, workspace: Resource, request: Request, body: Json) -> Response:
        found = self._known(workspace, DASHBOARDS, request, "Dashboard not found")
        meta = {**found.body["meta"], "url": f"{base_path(workspace)}{found.body['meta']['url']}"}
        return JSONResponse({"meta": meta, "dashboard": found.body["dashboard"]})

    def _remove_dashboard(self, workspace: Resource, request: Request, body: Json) -> Response:
        old = self._known(workspace, DASHBOARDS, request, "Dashboard not found")
        self._store.delete_grafana_object(old, actor=ACTOR)
        title = old.body["dashboard"]["title"]
        return JSONResponse({"message": f"Dashboard {title} deleted", "title": title, "uid": old.uid})

    def _known(self, workspace: Resource, kind: str, request: Request, otherwise: str) -> GrafanaObject:
        found = self._store.grafana_object(workspace.id, kind, request.path_params["uid"])
        if found is None:
            raise Refused(404, otherwise)
        return found

    def _save(self, workspace: Resource, kind: str, uid: str, body: Json) -> None:
        new = GrafanaObject(workspace_id=workspace.id, kind=kind, uid=uid, body=body)
        self._store.put_grafana_object(new, actor=ACTOR)
