# SPDX-License-Identifier: Apache-2.0
"""Folders, and dashboards that others publish, as Pulumi resources.

Thin, like `providers.py`, and as little to be moved or renamed: states name these classes by this module's path.
"""

import json

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult

from . import published
from .grafana_api import GrafanaApi, held
from .provider_state import Props, as_found, changed, gone, grafana_of, looked_at


class GrafanaFolderProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        replaces = changed(_olds, _news, "endpoint", "uid")
        changes = bool(replaces) or bool(changed(_olds, _news, "title", "permissions"))
        return DiffResult(changes=changes, replaces=replaces)

    def create(self, props: Props) -> CreateResult:
        _write_folder(props)
        return CreateResult(props["uid"], props)

    def read(self, id_: str, props: Props) -> ReadResult:
        def look(grafana: GrafanaApi) -> ReadResult:
            found = grafana.folder(props["uid"])
            if found is None:
                return gone()
            permissions = json.dumps(found["permissions"], sort_keys=True)
            return ReadResult(id_, {**props, "title": found["title"], "permissions": permissions})

        return looked_at(id_, props, look)

    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        _write_folder(_news)
        return UpdateResult(_news)

    def delete(self, _id: str, _props: Props) -> None:
        with grafana_of(_props) as grafana:
            grafana.delete_folder(_props["uid"])


class GrafanaFolder(Resource, module="gpuheap", name="GrafanaFolder"):
    """A folder; `permissions` is JSON, a level (1 view, 2 edit, 4 administer) for each role that has one."""

    def __init__(
        self,
        name: str,
        *,
        endpoint: pulumi.Input[str],
        private: pulumi.Input[bool],
        uid: str,
        title: str,
        permissions: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "endpoint": endpoint,
            "private": private,
            "uid": uid,
            "title": title,
            "permissions": permissions,
        }
        super().__init__(GrafanaFolderProvider(), name, inputs, opts)


class PublishedDashboardProvider(ResourceProvider):
    """Keeps in the state what was fetched, so that a refresh can tell whether somebody changed it."""

    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        replaces = changed(_olds, _news, "endpoint")
        other = bool(changed(_olds, _news, "url", "sha256", "folder"))
        return DiffResult(
            changes=bool(replaces) or other or _olds.get("definition") != _olds.get("fetched"),
            replaces=replaces,
        )

    def create(self, props: Props) -> CreateResult:
        made = _publish(props)
        return CreateResult(made["uid"], made)

    def read(self, id_: str, props: Props) -> ReadResult:
        fetched = {**props, "definition": props["fetched"]}
        return looked_at(id_, props, lambda grafana: as_found(id_, fetched, grafana.dashboard(props["uid"])))

    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        made = _publish(_news)
        if made["uid"] != _olds["uid"]:
            self.delete(_id, _olds)
        return UpdateResult(made)

    def delete(self, _id: str, _props: Props) -> None:
        with grafana_of(_props) as grafana:
            grafana.delete_dashboard(_props["uid"])


class PublishedDashboard(Resource, module="gpuheap", name="PublishedDashboard"):
    """A dashboard as its authors publish it at `url`, pinned by its checksum."""

    uid: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        endpoint: pulumi.Input[str],
        private: pulumi.Input[bool],
        url: str,
        sha256: str,
        folder: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "endpoint": endpoint,
            "private": private,
            "url": url,
            "sha256": sha256,
            "folder": folder,
            "uid": None,
            "definition": None,
            "fetched": None,
        }
        super().__init__(PublishedDashboardProvider(), name, inputs, opts)


def _write_folder(props: Props) -> None:
    with grafana_of(props) as grafana:
        grafana.put_folder(props["uid"], props["title"], json.loads(props["permissions"]))


def _publish(props: Props) -> Props:
    wanted = published.dashboard(props["url"], props["sha256"])
    with grafana_of(props) as grafana:
        grafana.put_dashboard(wanted["uid"], wanted, props["folder"])
        found = grafana.dashboard(wanted["uid"])
    # Without what Grafana numbers itself: `id` is null in the file.
    kept = {key: value for key, value in wanted.items() if key not in ("id", "version")}
    text = json.dumps(held(kept, found), sort_keys=True)
    return {**props, "uid": wanted["uid"], "definition": text, "fetched": text}
