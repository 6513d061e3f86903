# SPDX-License-Identifier: Apache-2.0
"""Grafana's folders and who may do what in them.

https://grafana.com/docs/grafana/v11.6/developers/http_api/folder/ and …/folder_permissions/
"""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localcloud.azure.grafana_content import (
    ACTOR,
    DASHBOARDS,
    FOLDERS,
    PERMISSIONS,
    Refused,
    base_path,
    checked_uid,
    made_up_uid,
    next_number,
    slug_of,
)
from localcloud.azure.records import GrafanaObject, Json, Resource
from localcloud.azure.store import Store

LEVELS: Final[Mapping[int, str]] = {1: "View", 2: "Edit", 4: "Admin"}
ROLES: Final = ("Viewer", "Editor")
AT_FIRST: Final = [{"role": "Editor", "permission": 2}, {"role": "Viewer", "permission": 1}]
"""What a new folder at the top has."""


class Folders:
    """The handlers of `/api/folders`, over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, workspace: Resource, request: Request, body: Json) -> Response:
        return JSONResponse([one.body for one in self._store.grafana_objects(workspace.id, FOLDERS)])

    def one(self, workspace: Resource, request: Request, body: Json) -> Response:
        return JSONResponse(self._known(workspace, request).body)

    def add(self, workspace: Resource, request: Request, body: Json) -> Response:
        if not body.get("title"):
            raise Refused(400, "folder title cannot be empty")
        uid = checked_uid(body.get("uid") or made_up_uid())
        there = self._store.grafana_objects(workspace.id, FOLDERS)
        if any(one.uid == uid for one in there):
            raise Refused(412, "the folder has been changed by someone else", status="version-mismatch")
        number = next_number(one.body["id"] for one in there)
        return self._saved(workspace, uid, body["title"], number=number, version=1)

    def change(self, workspace: Resource, request: Request, body: Json) -> Response:
        old = self._known(workspace, request)
        if not body.get("title"):
            raise Refused(400, "folder title cannot be empty")
        if not body.get("overwrite") and body.get("version") != old.body["version"]:
            raise Refused(412, "the folder has been changed by someone else", status="version-mismatch")
        number, version = old.body["id"], old.body["version"] + 1
        return self._saved(workspace, old.uid, body["title"], number=number, version=version)

    def remove(self, workspace: Resource, request: Request, body: Json) -> Response:
        """A folder goes with its dashboards."""
        old = self._known(workspace, request)
        for one in self._store.grafana_objects(workspace.id, DASHBOARDS):
            if one.body["meta"]["folderUid"] == old.uid:
                self._store.delete_grafana_object(one, actor=ACTOR)
        permissions = self._store.grafana_object(workspace.id, PERMISSIONS, old.uid)
        if permissions is not None:
            self._store.delete_grafana_object(permissions, actor=ACTOR)
        self._store.delete_grafana_object(old, actor=ACTOR)
        return JSONResponse({"id": old.body["id"], "message": "Folder deleted", "title": old.body["title"]})

    def permissions(self, workspace: Resource, request: Request, body: Json) -> Response:
        folder = self._known(workspace, request)
        kept = self._store.grafana_object(workspace.id, PERMISSIONS, folder.uid)
        items = kept.body["items"] if kept else AT_FIRST
        # Who administers the workspace may do everything in it, and stands in no list.
        return JSONResponse([_as_shown(item, folder.uid) for item in items])

    def set_permissions(self, workspace: Resource, request: Request, body: Json) -> Response:
        folder = self._known(workspace, request)
        items = body.get("items")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Refused(400, "bad request data")
        for item in items:
            targets = [key for key in ("role", "teamId", "userId") if item.get(key)]
            if len(targets) != 1 or item.get("permission") not in LEVELS:
                raise Refused(400, "permission items must have one of role, teamId and userId, and 1, 2 or 4")
            if "role" in item and item["role"] not in ROLES:
                raise Refused(400, f"role must be one of {', '.join(ROLES)}")
        new = GrafanaObject(
            workspace_id=workspace.id, kind=PERMISSIONS, uid=folder.uid, body={"items": items}
        )
        self._store.put_grafana_object(new, actor=ACTOR)
        return JSONResponse({"message": "Folder permissions updated"})

    def _known(self, workspace: Resource, request: Request) -> GrafanaObject:
        found = self._store.grafana_object(workspace.id, FOLDERS, request.path_params["uid"])
        if found is None:
            raise Refused(404, "folder not found")
        return found

    def _saved(self, workspace: Resource, uid: str, title: str, *, number: int, version: int) -> Response:
        folder = {
            "uid": uid,
            "title": title,
            "id": number,
            "version": version,
            "url": f"{base_path(workspace)}/dashboards/f/{uid}/{slug_of(title)}",
        }
        new = GrafanaObject(workspace_id=workspace.id, kind=FOLDERS, uid=uid, body=folder)
        self._store.put_grafana_object(new, actor=ACTOR)
        return JSONResponse(folder)


def _as_shown(item: Json, folder: str) -> Json:
    return {
        "uid": folder,
        "isFolder": True,
        "inherited": False,
        "userId": item.get("userId", 0),
        "teamId": item.get("teamId", 0),
        **({"role": item["role"]} if "role" in item else {}),
        "permission": item["permission"],
        "permissionName": LEVELS[item["permission"]],
    }
