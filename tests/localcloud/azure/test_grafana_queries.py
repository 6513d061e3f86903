# SPDX-License-Identifier: Apache-2.0
"""What simulated Grafana answers to queries, pages and questions about folders."""

import time
from typing import Any

import pytest

from gpuheap.contract import profile_type_id
from gpuheap.profile.encode import encode_gzip
from localcloud.azure.grafana_content import SOURCES
from localcloud.azure.grafana_queries import results
from localcloud.azure.records import GrafanaObject, Resource
from localcloud.azure.store import Store
from localcloud.load import profile
from tests.localcloud.azure.asking import GROUP

WORKSPACE = Resource(
    id=f"{GROUP}/providers/Microsoft.Dashboard/grafana/graf",
    token="azure-native:dashboard:Grafana",
    outputs={"name": "graf"},
)
TYPE = profile_type_id("inuse_space")


@pytest.fixture
def source(store: Store, group: Resource) -> Store:
    """A store with a data source that an approved endpoint leads to."""
    store.create_resource(WORKSPACE, actor="test")
    endpoint = {"privateLinkServiceUrl": "p.internal", "connectionState": {"status": "Approved"}}
    store.create_resource(
        Resource(
            id=f"{WORKSPACE.id}/managedPrivateEndpoints/p",
            token="azure-native:dashboard:ManagedPrivateEndpoint",
            outputs=endpoint,
        ),
        actor="test",
    )
    body = {"uid": "profiles", "type": "grafana-pyroscope-datasource", "url": "http://p.internal:4040"}
    store.put_grafana_object(
        GrafanaObject(workspace_id=WORKSPACE.id, kind=SOURCES, uid="profiles", body=body), actor="test"
    )
    return store


def _asked(store: Store, **change: Any) -> dict[str, Any]:
    query = {
        "refId": "A",
        "datasource": {"uid": "profiles"},
        "profileTypeId": TYPE,
        "labelSelector": "{}",
        **change,
    }
    answer: dict[str, Any] = results({"queries": [query], "from": "now-60s", "to": "now"}, WORKSPACE, store)[
        "A"
    ]
    return answer


def _push(store: Store, seconds_ago: float) -> int:
    at = int((time.time() - seconds_ago) * 1e9)
    store.add_profile({"__name__": "gpu_memory", "service_name": "s"}, encode_gzip(profile(3, now_ns=at)))
    return at // 1_000_000


def test_a_query_tells_when_profiles_of_its_type_arrived(source: Store) -> None:
    _push(source, 300)
    at = _push(source, 10)
    (frame,) = _asked(source)["frames"]
    assert frame["data"]["values"][0] == [at]
    (other,) = _asked(source, profileTypeId="process_cpu:malloc:bytes::")["frames"]
    assert other["data"]["values"] == [[], []]


def test_a_data_source_that_cannot_be_reached_answers_with_an_error(source: Store) -> None:
    endpoint = source.resource(f"{WORKSPACE.id}/managedPrivateEndpoints/p")
    assert endpoint is not None
    endpoint.outputs["connectionState"]["status"] = "Rejected"
    source.put_resource(endpoint, actor="test")
    assert "Rejected" in _asked(source)["error"]


def test_an_unknown_data_source_is_not_found(source: Store) -> None:
    assert _asked(source, datasource={"uid": "none"})["status"] == 404
