# SPDX-License-Identifier: Apache-2.0
"""Helm's records of installations that did not come to their end. Helm refuses every other one as long as it has such a
record, and nothing but whoever installed ends it; what it has made belongs to the release's name, and the next
installation takes it on.

Not here: whether somebody still installs. The lock of the stack says so.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

from .ids import HELM_RELEASE
from .state import operations, resources

UNFINISHED: Final = ["pending-install", "pending-upgrade", "pending-rollback"]
"""https://github.com/helm/helm/blob/main/pkg/release/common/status.go"""

TIMEOUT_SECONDS: Final = 10.0


class ClusterSilent(Exception):
    """The cluster of a release does not answer, or not to us; the text says so."""


@dataclass(frozen=True, slots=True)
class Record:
    """A Secret of Helm's. As text: namespace and name."""

    kubernetes: Client
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def remove(self) -> None:
        """Raises ClusterSilent."""
        with _answering(str(self)):
            self.kubernetes.delete(Secret, self.name, namespace=self.namespace)


def unfinished_records(state: Mapping[str, Any]) -> list[Record]:
    """Of the releases in a state with its secrets in clear. Raises ClusterSilent."""
    records = []
    for kubeconfig, namespace, release in _releases(state):
        labels: dict[str, Any] = {"owner": "helm", "name": release, "status": UNFINISHED}
        with _answering(f"{namespace}/{release}"):
            kubernetes = Client(
                KubeConfig.from_dict(kubeconfig).get(), timeout=httpx2.Timeout(TIMEOUT_SECONDS)
            )
            for record in kubernetes.list(Secret, namespace=namespace, labels=labels):
                assert isinstance(record.metadata, ObjectMeta)
                records.append(Record(kubernetes, namespace, str(record.metadata.name)))
    return records


@contextmanager
def _answering(of: str) -> Iterator[None]:
    try:
        yield
    except (ApiError, ConfigError, OSError, httpx2.HTTPError) as error:
        raise ClusterSilent(f"Helm's records of {of} cannot be read or removed: {error}") from error


def _releases(state: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Kubeconfig, namespace and name of each release that is there or was being made."""
    there = resources(state)
    begun = [operation["resource"] for operation in operations(state)]
    providers = {f"{one['urn']}::{one.get('id')}": one.get("inputs", {}) for one in there}
    for one in [*there, *begun]:
        kubeconfig = _plain(providers.get(one.get("provider"), {}).get("kubeconfig"))
        if one["type"] == HELM_RELEASE and kubeconfig:
            inputs = one["inputs"]
            yield yaml.safe_load(kubeconfig), inputs.get("namespace", "default"), inputs["name"]


def _plain(value: Any) -> str:
    """A secret as `pulumi stack export --show-secrets` writes it: JSON in JSON."""
    return str(json.loads(value["plaintext"])) if isinstance(value, Mapping) else str(value or "")
