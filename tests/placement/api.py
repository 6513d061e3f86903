# SPDX-License-Identifier: Apache-2.0
"""The API server over plain HTTP, as `kubectl` speaks to it: what it answers, and the warnings that come along."""

import base64
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

GROUPS = {
    "apps/v1": ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
    "batch/v1": ("Job", "CronJob"),
    "v1": ("Pod", "ReplicationController"),
}
API_VERSIONS = {kind: version for version, kinds in GROUPS.items() for kind in kinds}


@dataclass(frozen=True, kw_only=True)
class Answer:
    accepted: bool
    message: str
    """Of a refusal."""
    warnings: Sequence[str]


class Api:
    """One API server, asked as its administrator or as whom the administrator may stand for."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        context = ssl.create_default_context()
        context.load_verify_locations(cadata=_decoded(cluster["certificate-authority-data"]))
        self._http = httpx.Client(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {user['token']}"},
            verify=context,
            trust_env=False,
            timeout=60,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def create(
        self,
        manifest: Mapping[str, Any],
        *,
        dry_run: bool = False,
        user: str | None = None,
        groups: Sequence[str] = (),
    ) -> Answer:
        """Make an object; with `dry_run` it goes through everything but the store."""
        return self._ask("POST", _collection(manifest), manifest, dry_run=dry_run, user=user, groups=groups)

    def replace(self, manifest: Mapping[str, Any]) -> Answer:
        return self._ask("PUT", f"{_collection(manifest)}/{manifest['metadata']['name']}", manifest)

    def patch(self, path: str, change: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """A strategic merge, as `kubectl edit` sends it."""
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        return self._ask("PATCH", path, change, dry_run=dry_run, headers=kind)

    def get(self, path: str) -> dict[str, Any]:
        response = self._http.get(path)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def serves(self, group_version: str) -> set[str]:
        """The resources of a group, none while the server does not know it."""
        response = self._http.get(f"/apis/{group_version}")
        return {each["name"] for each in response.json().get("resources", [])}

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        user: str | None = None,
        groups: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        pairs = list((headers or {}).items())
        pairs += [("Impersonate-User", user)] if user else []
        pairs += [("Impersonate-Group", group) for group in groups]
        response = self._http.request(
            method, path, json=body, headers=pairs, params={"dryRun": "All"} if dry_run else {}
        )
        content = response.json()
        warnings = [re.sub(r'^299 - "(.*)"$', r"\1", text) for text in response.headers.get_list("warning")]
        return Answer(
            accepted=response.is_success,
            message="" if response.is_success else content["message"],
            warnings=warnings,
        )


def _collection(manifest: Mapping[str, Any]) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    kind = manifest["kind"].lower()
    plural = re.sub("ys$", "ies", re.sub("sss$", "sses", f"{kind}s"))
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
