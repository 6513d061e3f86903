# SPDX-License-Identifier: Apache-2.0
"""Reads the tables in `manifests/`: which object is made, and what must be answered. `pods.yaml` tells the form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.placement.api import API_VERSIONS

FOLDER = Path(__file__).parent / "manifests"
PATHS = {"Pod": "spec", "CronJob": "spec.jobTemplate.spec.template.spec"}
LABELS = {"app": "case"}
KEYS = {"case", "kinds", "spec", "refused", "refused without plugin", "namespace", "user", "groups", "owner"}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    by: str
    says: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Case:
    title: str
    kind: str
    spec: Mapping[str, Any]
    """Of the pods, each container with an image."""
    refused: Refusal | None
    refused_without_plugin: Refusal | None
    namespace: str
    user: str | None
    owner: str | None

    @property
    def path(self) -> str:
        """Where the pod spec lies in the object."""
        return PATHS.get(self.kind, "spec.template.spec")

    @property
    def manifest(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": "case", "namespace": self.namespace}
        if self.owner:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": API_VERSIONS[self.owner],
                    "kind": self.owner,
                    "name": "owner",
                    "uid": "00000000-0000-0000-0000-000000000001",
                    "controller": True,
                }
            ]
        return {
            "apiVersion": API_VERSIONS[self.kind],
            "kind": self.kind,
            "metadata": metadata,
            "spec": _object_spec(self.kind, self.spec),
        }

    def __str__(self) -> str:
        return f"{self.kind}: {self.title}"


def cases(*files: str) -> list[Case]:
    """Those of the named tables."""
    return [case for file in files for entry in _entries(file) for case in _cases(entry)]


def _entries(file: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load((FOLDER / file).read_text())
    for entry in entries:
        unknown = entry.keys() - KEYS
        assert not unknown, f"{file}: {entry['case']}: no such key: {unknown}"
    return entries


def _cases(entry: Mapping[str, Any]) -> list[Case]:
    refused = _refusal(entry.get("refused"))
    whole = Case(
        title=entry["case"],
        kind="Pod",
        spec=_with_images(entry["spec"]),
        refused=refused,
        refused_without_plugin=(
            _refusal(entry["refused without plugin"]) if "refused without plugin" in entry else refused
        ),
        namespace=entry.get("namespace", "work"),
        user=entry.get("user"),
        owner=entry.get("owner"),
    )
    return [replace(whole, kind=kind) for kind in entry.get("kinds", ["Pod"])]


def _refusal(entry: Mapping[str, Any] | None) -> Refusal | None:
    return Refusal(by=entry["by"], says=tuple(entry["says"])) if entry else None


def _with_images(spec: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(spec)
    for key in ("containers", "initContainers"):
        if key in whole:
            whole[key] = [{"image": "registry.example/image", **container} for container in whole[key]]
    return whole


def _object_spec(kind: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "Pod":
        return dict(pod)
    ends = kind in ("Job", "CronJob")
    template = {
        "metadata": {"labels": LABELS},
        "spec": {**pod, "restartPolicy": "Never"} if ends else dict(pod),
    }
    match kind:
        case "Job":
            return {"template": template}
        case "CronJob":
            return {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
        case "ReplicationController":
            return {"selector": LABELS, "template": template}
    extra = {"serviceName": "case"} if kind == "StatefulSet" else {}
    return {"selector": {"matchLabels": LABELS}, "template": template, **extra}
