# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's release, and the Service before which the Private Link Service is put."""

import ipaddress
from typing import Any

import pytest

from components.pyroscope_values import microservices, single
from components.settings.pyroscope import Pyroscope as Settings
from tests.components.configs import refused
from tests.components.conftest import EXISTING, run_program
from tests.components.recorder import ANSWERS, Recording

SERVICE = "pyroscope-private-link"
PREFIX = "service.beta.kubernetes.io/azure-"


def test_the_release_goes_into_the_namespace_that_the_extension_makes(dev: Recording) -> None:
    release = dev["pyroscope"]
    assert release.inputs["namespace"] == "gadget"
    assert not release.inputs.get("createNamespace")
    assert "inspektor-gadget" in release.needs


def test_a_chart_from_a_registry_is_asked_for_by_version(existing: Recording) -> None:
    release = existing["pyroscope"].inputs
    assert release["chart"] == "oci://ghcr.io/grafana/helm-charts/pyroscope"
    assert release["version"] == "1.15.0"


def test_values_are_those_of_the_published_procedure() -> None:
    chart = single(Settings.model_validate({"diskGib": 0}))
    assert chart["pyroscope"]["replicaCount"] == 1
    assert chart["pyroscope"]["disableSelfProfile"] is True
    assert chart["pyroscope"]["structuredConfig"]["storage"]["backend"] == "filesystem"
    assert chart["pyroscope"]["service"]["type"] == "ClusterIP"
    assert chart["alloy"]["enabled"] is False
    assert chart["minio"]["enabled"] is False


def test_a_disk_is_asked_for_in_the_size_of_the_configuration() -> None:
    assert single(Settings.model_validate({"diskGib": 64}))["pyroscope"]["persistence"] == {
        "enabled": True,
        "size": "64Gi",
    }
    assert single(Settings.model_validate({"diskGib": 0}))["pyroscope"]["persistence"] == {"enabled": False}


def test_the_service_asks_for_an_internal_load_balancer_with_a_private_link_service(dev: Recording) -> None:
    service = dev[SERVICE].inputs
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {
        f"{PREFIX}load-balancer-internal": "true",
        f"{PREFIX}pls-create": "true",
        f"{PREFIX}pls-name": "gpuheap-test-pyroscope",
        f"{PREFIX}pls-resource-group": "gpuheap-dev",
        f"{PREFIX}pls-ip-configuration-subnet": "private-link",
        f"{PREFIX}pls-proxy-protocol": "false",
        f"{PREFIX}pls-visibility": "*",
    }


def test_the_service_selects_the_pods_of_the_chart(dev: Recording) -> None:
    assert dev[SERVICE].inputs["spec"]["selector"] == {
        "app.kubernetes.io/name": "pyroscope",
        "app.kubernetes.io/instance": "pyroscope",
        "app.kubernetes.io/component": "all",
    }


def test_nobody_is_approved_without_being_looked_at(dev: Recording, existing: Recording) -> None:
    for stack in (dev, existing):
        assert f"{PREFIX}pls-auto-approval" not in stack[SERVICE].inputs["metadata"]["annotations"]


def test_an_existing_network_gives_the_subnet_of_the_configuration(existing: Recording) -> None:
    annotations = existing[SERVICE].inputs["metadata"]["annotations"]
    assert annotations[f"{PREFIX}pls-ip-configuration-subnet"] == "private-link"


def test_making_and_removing_the_private_link_service_gets_its_time(dev: Recording) -> None:
    timeouts = dev[SERVICE].request.customTimeouts
    assert (timeouts.create, timeouts.delete) == ("20m", "20m")


MICROSERVICES: dict[str, Any] = {
    "size": "microservices",
    "storage": {"accountName": "gpuheapprofiles"},
    "retentionDays": 30,
    "load": {"nodes": 50, "processesPerNode": 8, "stacksPerProcess": 2000},
    "components": {"ingester": {"memoryGib": 12}, "querier": {"replicas": 5, "cpu": "2"}},
}


@pytest.fixture(scope="module")
def large() -> Recording:
    """Pyroscope as microservices, on the existing cluster."""
    return run_program({**EXISTING, "gpuheap:pyroscope": MICROSERVICES})


def test_what_is_pushed_and_kept_is_limited_by_the_configuration() -> None:
    settings = Settings.model_validate(
        {"retentionDays": 7, "load": {"nodes": 10, "processesPerNode": 8, "stacksPerProcess": 1000}}
    )
    limits = single(settings)["pyroscope"]["structuredConfig"]["limits"]
    # by hand: 10 x 8 x 1000 x 260 bytes are 19.8 MiB, half as much again 29.8; 1.3 MiB/s are less than the default
    assert limits["ingestion_burst_size_mb"] == 30
    assert limits["ingestion_rate_mb"] == 4
    assert limits["compactor_blocks_retention_period"] == "168h"


def test_components_get_what_follows_from_the_load_and_what_is_said() -> None:
    components = microservices(Settings.model_validate(MICROSERVICES), "client")["pyroscope"]["components"]
    # by hand: 13.2 MiB/s, three times over, at 4 MiB/s an ingester
    assert components["ingester"]["replicaCount"] == 10
    assert components["ingester"]["resources"]["limits"]["memory"] == "12Gi"
    assert components["querier"]["replicaCount"] == 5
    assert components["querier"]["resources"]["requests"]["cpu"] == "2"


def test_microservices_share_a_storage_account_without_a_key(large: Recording) -> None:
    values = large["pyroscope"].inputs["values"]["pyroscope"]
    assert values["structuredConfig"]["storage"] == {
        "backend": "azure",
        "azure": {"account_name": "gpuheapprofiles", "container_name": "pyroscope"},
    }
    assert values["extraLabels"] == {"azure.workload.identity/use": "true"}
    assert values["serviceAccount"]["annotations"] == {
        "azure.workload.identity/client-id": "pyroscope-client"
    }
    account = large["pyroscope-storage-account"].inputs
    assert account["allowSharedKeyAccess"] is False
    assert account["allowBlobPublicAccess"] is False


def test_the_storage_trusts_pyroscopes_service_account_of_this_cluster(large: Recording) -> None:
    trust = large["pyroscope-storage-trust"].inputs
    assert trust["issuer"] == "https://issuer.example/existing/"
    assert trust["subject"] == "system:serviceaccount:gadget:pyroscope"
    role = large["pyroscope-storage-blobs"].inputs
    assert role["roleDefinitionId"].endswith("ba92f5b4-2d11-453d-a403-e96b0029c9fe")
    assert role["scope"] == "/id/pyroscope-storage-container"
    assert {"pyroscope-storage-trust", "pyroscope-storage-blobs"} <= large["pyroscope"].needs


def test_profilers_write_and_grafana_reads_where_there_are_components(large: Recording) -> None:
    writers = large["pyroscope-writers"].inputs
    assert writers["metadata"]["name"] == "pyroscope"
    assert writers["spec"]["selector"]["app.kubernetes.io/component"] == "distributor"
    assert large[SERVICE].inputs["spec"]["selector"]["app.kubernetes.io/component"] == "query-frontend"


def test_only_profilers_and_the_private_link_subnet_reach_pyroscope(dev: Recording) -> None:
    policy = dev["pyroscope-access"].inputs
    assert policy["metadata"]["namespace"] == "gadget"
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "pyroscope"}}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    inside, outside = policy["spec"]["ingress"]
    assert inside["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "pyroscope"}}}]
    assert outside["ports"] == [{"port": 4040, "protocol": "TCP"}]
    assert [peer.get("ipBlock", peer.get("namespaceSelector")) for peer in outside["from"]] == [
        {"matchLabels": {"kubernetes.io/metadata.name": "gadget"}},
        {"matchLabels": {"kubernetes.io/metadata.name": "gpuheap"}},
        {"cidr": "10.40.16.0/24"},
    ]


def test_requests_keep_the_address_by_which_the_policy_knows_them(dev: Recording) -> None:
    assert dev[SERVICE].inputs["spec"]["externalTrafficPolicy"] == "Local"


def ranges(stack: Recording) -> list[str]:
    """From where, other than from pods, Pyroscope is reached."""
    peers = stack["pyroscope-access"].inputs["spec"]["ingress"][1]["from"]
    return [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]


def test_the_range_of_a_subnet_that_is_not_ours_is_looked_up(existing: Recording) -> None:
    assert ranges(existing) == ["10.9.16.0/24"]
    (asked,) = [call.args for call in existing.asked if call.token == "azure-native:network:getSubnet"]
    assert asked == {
        "resourceGroupName": "shared-net",
        "virtualNetworkName": "shared",
        "subnetName": "private-link",
    }


def test_a_range_that_is_named_is_not_looked_up() -> None:
    link = {**EXISTING["gpuheap:privateLink"], "sourceRange": "10.9.8.0/28"}
    stack = run_program({**EXISTING, "gpuheap:privateLink": link})
    assert ranges(stack) == ["10.9.8.0/28"]
    assert "azure-native:network:getSubnet" not in [call.token for call in stack.asked]


def test_in_a_network_that_aks_made_for_itself_pods_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = "azure-native:containerservice:getManagedCluster"
    profile = {"networkPlugin": "azure", "podCidrs": ["10.244.0.0/16"]}
    own = {"agentPoolProfiles": [{"name": "system"}], "networkProfile": profile}
    monkeypatch.setitem(ANSWERS, cluster, {**ANSWERS[cluster], **own})
    found = [ipaddress.ip_network(range_) for range_ in ranges(run_program(EXISTING))]
    for address, reaches in (("10.224.0.7", True), ("192.168.1.1", True), ("10.244.3.4", False)):
        assert any(ipaddress.ip_address(address) in range_ for range_ in found) is reaches, address


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": "microservices"}, "gpuheap:pyroscope.storage.accountName"),
        ({"storage": {"accountName": "profiles"}}, "one replica keeps its profiles, once, on its own disk"),
        ({"replication": 2}, "replication with size microservices"),
        ({**MICROSERVICES, "memoryGib": 8}, "memoryGib of one of components"),
        ({**MICROSERVICES, "storage": {"accountName": "No-Such"}}, "3 to 24 lower-case letters and digits"),
        ({**MICROSERVICES, "components": {"ingester": {"replicas": 2}}}, "more copies than ingesters"),
        ({**MICROSERVICES, "components": {"injester": {"replicas": 3}}}, "gpuheap:pyroscope.components"),
        ({"version": "2.0.0"}, "gpuheap:pyroscope.version"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    assert words in "\n".join(map(str, refused(pyroscope=settings)))
