# SPDX-License-Identifier: Apache-2.0
"""Data sources and dashboards in Grafana's own form, and when it refuses them. Values in, values out."""

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from localcloud.azure.records import Json, Resource

UID_CHARACTERS: Final = 40
ACTOR: Final = "grafana"
"""Who changed something, in the store's events."""
SOURCES, DASHBOARDS, FOLDERS, PERMISSIONS = "datasources", "dashboards", "folders", "folder-permissions"


class Refused(Exception):
    """An answer with an error; its content is Grafana's."""

    def __init__(self, status_code: int, message: str, **more: str) -> None:
        super().__init__(message)
        self.status_code, self.content = status_code, {"message": message, **more}


def check_complete(source: Json) -> None:
    """Raises Refused for a data source without what every data source has."""
    if not all(source.get(name) for name in ("name", "type")):
        raise Refused(400, "bad request data")
    if source.get("access", "proxy") not in ("proxy", "direct"):
        raise Refused(400, "bad request data")


def source_as_shown(given: Json, *, number: int, version: int) -> Json:
    """A data source as Grafana shows it: with defaults, and secrets only by name."""
    return {
        "id": number,
        "uid": given["uid"],
        "orgId": 1,
        "name": given["name"],
        "type": given["type"],
        "typeLogoUrl": "",
        "access": given.get("access", "proxy"),
        "url": given.get("url", ""),
        "user": given.get("user", ""),
        "database": given.get("database", ""),
        "basicAuth": given.get("basicAuth", False),
        "basicAuthUser": given.get("basicAuthUser", ""),
        "withCredentials": given.get("withCredentials", False),
        "isDefault": given.get("isDefault", False),
        "jsonData": given.get("jsonData") or {},
        "secureJsonFields": dict.fromkeys(given.get("secureJsonData") or (), True),
        "version": version,
        "readOnly": given.get("readOnly", False),
        "apiVersion": "",
    }


def source_answer(source: Json, message: str) -> Json:
    return {"datasource": source, "id": source["id"], "message": message, "name": source["name"]}


def dashboard_meta(dashboard: Json, folder: str, created: str) -> Json:
    slug = slug_of(dashboard["title"])
    return {
        "type": "db",
        "canSave": True,
        "canEdit": True,
        "canAdmin": True,
        "canStar": True,
        "canDelete": True,
        "slug": slug,
        "url": f"/d/{dashboard['uid']}/{slug}",
        "created": created,
        "updated": now(),
        "version": dashboard["version"],
        "folderUid": folder,
        "isFolder": False,
        "provisioned": False,
    }


def checked_uid(uid: str) -> str:
    if len(uid) > UID_CHARACTERS:
        raise Refused(400, f"uid too long, max {UID_CHARACTERS} characters")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", uid):
        raise Refused(400, "uid contains illegal characters")
    return uid


def slug_of(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def base_path(workspace: Resource) -> str:
    return f"/grafana/{workspace.name}"


def made_up_uid() -> str:
    return uuid.uuid4().hex[:14]


def next_number(numbers: Iterable[int]) -> int:
    return max(numbers, default=0) + 1


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
