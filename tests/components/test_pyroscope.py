# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's release, and the Service before which the Private Link Service is put."""

from components.pyroscope import values
from tests.components.recorder import Recording

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
    chart = values(disk_gib=0)
    assert chart["pyroscope"]["replicaCount"] == 1
    assert chart["pyroscope"]["disableSelfProfile"] is True
    assert chart["pyroscope"]["structuredConfig"]["storage"]["backend"] == "filesystem"
    assert chart["pyroscope"]["service"]["type"] == "ClusterIP"
    assert chart["alloy"]["enabled"] is False
    assert chart["minio"]["enabled"] is False


def test_a_disk_is_asked_for_in_the_size_of_the_configuration() -> None:
    assert values(disk_gib=64)["pyroscope"]["persistence"] == {"enabled": True, "size": "64Gi"}
    assert values(disk_gib=0)["pyroscope"]["persistence"] == {"enabled": False}


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
