# SPDX-License-Identifier: Apache-2.0
"""Data sources, dashboards and folders of a Grafana workspace, over Grafana's own HTTP API. Nothing here imports
pulumi.

https://grafana.com/docs/grafana/latest/developers/http_api/
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeVar

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, map_error
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, UserAgentPolicy
from azure.core.rest import HttpRequest

from .patience import BUSY, Patience

Json = dict[str, Any]
T = TypeVar("T")

# 409 is no sign of a busy server here: another data source has the name.
AGAIN: Final = BUSY - {409}

# Of one attempt: who waits decides how often. The library's own are five minutes.
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0


ROLES: Final = ("Viewer", "Editor")
"""Of a folder's rights. Who administers the workspace may do everything in it."""


class GrafanaError(Exception):
    """Grafana refused a request; the text holds its answer."""


class GrafanaApi:
    """One workspace. Every call is repeated while rights spread and while Grafana is busy; each is safe to
    repeat.
    """

    def __init__(
        self, endpoint: str, *, credential: TokenCredential, scope: str, patience: Patience, **transport: Any
    ) -> None:
        self._patience = patience
        self._client: PipelineClient[Any, Any] = PipelineClient(
            endpoint,
            policies=[UserAgentPolicy("gpuheap"), BearerTokenCredentialPolicy(credential, scope)],
            connection_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            **transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def data_source(self, uid: str) -> Json | None:
        """The data source as Grafana has it; None when it has none."""
        path = f"/api/datasources/uid/{uid}"
        return self._patiently(f"reading data source {uid}", lambda: self._find(path))

    def put_data_source(self, uid: str, definition: Mapping[str, Any]) -> None:
        """Makes the data source what `definition` says, whether it is there or not."""
        path, body = f"/api/datasources/uid/{uid}", {**definition, "uid": uid}

        def attempt() -> Json:
            # Looked up each time: the answer to the attempt before may have been lost after it took effect.
            if self._find(path) is None:
                made: Json = self._send("POST", "/api/datasources", body)
                return made
            changed: Json = self._send("PUT", path, body)
            return changed

        self._patiently(f"writing data source {uid}", attempt)

    def delete_data_source(self, uid: str) -> None:
        """Removes the data source; that it is gone already is fine."""
        path = f"/api/datasources/uid/{uid}"
        self._patiently(f"removing data source {uid}", lambda: self._discard(path))

    def dashboard(self, uid: str) -> Json | None:
        """The dashboard's own JSON, without what Grafana keeps beside it; None when there is none."""
        path = f"/api/dashboards/uid/{uid}"
        found = self._patiently(f"reading dashboard {uid}", lambda: self._find(path))
        return None if found is None else found["dashboard"]

    def put_dashboard(self, uid: str, definition: Mapping[str, Any], folder: str = "") -> None:
        """Makes the dashboard what `definition` says, in that folder, whatever was changed by hand."""
        body = {"dashboard": {**definition, "uid": uid, "id": None}, "folderUid": folder, "overwrite": True}
        self._patiently(f"writing dashboard {uid}", lambda: self._send("POST", "/api/dashboards/db", body))

    def delete_dashboard(self, uid: str) -> None:
        """Removes the dashboard; that it is gone already is fine."""
        path = f"/api/dashboards/uid/{uid}"
        self._patiently(f"removing dashboard {uid}", lambda: self._discard(path))

    def folder(self, uid: str) -> Json | None:
        """A folder's `title` and `permissions`, the latter by role; None when there is none."""
        path = f"/api/folders/{uid}"
        found = self._patiently(f"reading folder {uid}", lambda: self._find(path))
        if found is None:
            return None
        items = self._patiently(f"reading rights in {uid}", lambda: self._send("GET", f"{path}/permissions"))
        held_by = {item["role"]: item["permission"] for item in items if item.get("role") in ROLES}
        return {"title": found["title"], "permissions": held_by}

    def put_folder(self, uid: str, title: str, permissions: Mapping[str, int]) -> None:
        """Makes the folder and who may do what in it as said. What is said of nobody, nobody may."""
        path = f"/api/folders/{uid}"

        def attempt() -> Json:
            if self._find(path) is None:
                made: Json = self._send("POST", "/api/folders", {"uid": uid, "title": title})
                return made
            changed: Json = self._send("PUT", path, {"title": title, "overwrite": True})
            return changed

        self._patiently(f"writing folder {uid}", attempt)
        items = [{"role": role, "permission": level} for role, level in sorted(permissions.items())]
        self._patiently(
            f"writing rights in {uid}", lambda: self._send("POST", f"{path}/permissions", {"items": items})
        )

    def delete_folder(self, uid: str) -> None:
        """Removes the folder with all that is in it; that it is gone already is fine."""
        path = f"/api/folders/{uid}"
        self._patiently(f"removing folder {uid}", lambda: self._discard(path))

    def _patiently(self, what: str, attempt: Callable[[], T]) -> T:
        try:
            return self._patience.wait(f"Grafana: {what}", attempt)
        except HttpResponseError as error:
            text = error.response.text() if error.response is not None else str(error)
            raise GrafanaError(f"{what} was answered with {error.status_code}: {text[:500]}") from error

    def _find(self, path: str) -> Json | None:
        try:
            found: Json = self._send("GET", path)
            return found
        except ResourceNotFoundError:
            return None

    def _discard(self, path: str) -> None:
        try:
            self._send("DELETE", path)
        except ResourceNotFoundError:
            return

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = self._client.format_url(path)
        response = self._client.send_request(HttpRequest(method, url, json=body))
        if response.status_code >= 400:
            # ResourceNotFoundError for 404, HttpResponseError for the rest.
            map_error(response.status_code, response, {404: ResourceNotFoundError})
            raise HttpResponseError(response=response)
        return response.json()


def held(wanted: Any, found: Any) -> Any:
    """The part of `found` that `wanted` speaks of: what Grafana adds of its own is no difference."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return {key: held(value, found.get(key)) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [held(ours, theirs) for ours, theirs in zip(wanted, found, strict=True)]
    return found
