# SPDX-License-Identifier: Apache-2.0
"""What Helm has noted of installations that were interrupted, on a real API server."""

import base64
import json
from typing import Any

import pytest
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

from localcloud.cloud import LocalCloud
from localcloud.kube.watching import client
from recovery.helm import ClusterSilent, unfinished_records

pytestmark = pytest.mark.cluster

# As Helm labels them: https://github.com/helm/helm/blob/main/pkg/storage/driver/secrets.go
RECORDS = [
    ("pyroscope", 1, "superseded"),
    ("pyroscope", 2, "deployed"),
    ("pyroscope", 3, "pending-upgrade"),
    ("somebodys", 1, "pending-install"),
]


def state(kubeconfig: str) -> dict[str, Any]:
    provider = {
        "urn": "urn:provider",
        "id": "one",
        "type": "pulumi:providers:kubernetes",
        "inputs": {
            "kubeconfig": {"4dabf18193072939515e22adb298388d": "", "plaintext": json.dumps(kubeconfig)}
        },
    }
    release = {
        "urn": "urn:release",
        "type": "kubernetes:helm.sh/v3:Release",
        "provider": "urn:provider::one",
        "inputs": {"name": "pyroscope", "namespace": "default"},
    }
    begun = [{"type": "creating", "resource": release}]
    return {"version": 3, "deployment": {"resources": [provider], "pending_operations": begun}}


def test_only_what_did_not_end_is_forgotten_and_only_of_our_releases(local_cloud: LocalCloud) -> None:
    kubeconfig = local_cloud.endpoints.kubeconfig
    kubernetes = client(kubeconfig)
    for name, version, status in RECORDS:
        labels = {"owner": "helm", "name": name, "status": status, "version": str(version)}
        metadata = ObjectMeta(
            name=f"sh.helm.release.v1.{name}.v{version}", namespace="default", labels=labels
        )
        data = {"release": base64.b64encode(b"what was asked for").decode()}
        kubernetes.create(Secret(metadata=metadata, type="helm.sh/release.v1", data=data))
    (record,) = unfinished_records(state(kubeconfig.read_text()))
    assert str(record) == "default/sh.helm.release.v1.pyroscope.v3"
    record.remove()
    assert unfinished_records(state(kubeconfig.read_text())) == []
    left = [one.metadata.name for one in kubernetes.list(Secret, namespace="default") if one.metadata]
    assert left == [
        f"sh.helm.release.v1.{name}.v{version}" for name, version, _ in (RECORDS[0], RECORDS[1], RECORDS[3])
    ]


def test_a_cluster_that_does_not_answer_is_told(local_cloud: LocalCloud) -> None:
    kubeconfig = yaml.safe_load(local_cloud.endpoints.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    with pytest.raises(ClusterSilent, match="default/pyroscope"):
        unfinished_records(state(yaml.safe_dump(kubeconfig)))


def test_a_cluster_that_asks_for_a_program_that_is_not_there_is_told(local_cloud: LocalCloud) -> None:
    kubeconfig = yaml.safe_load(local_cloud.endpoints.kubeconfig.read_text())
    program = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "no-such-kubelogin"}
    kubeconfig["users"][0]["user"] = {"exec": program}
    with pytest.raises(ClusterSilent, match="no-such-kubelogin"):
        unfinished_records(state(yaml.safe_dump(kubeconfig)))
