# SPDX-License-Identifier: Apache-2.0
"""Grafana's private endpoint and its approval."""

from tests.components.recorder import SUBSCRIPTION, Recording

SERVICE_ID = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/gpuheap-dev"
    "/providers/Microsoft.Network/privateLinkServices/gpuheap-test-pyroscope"
)


def test_the_endpoint_has_a_domain_name_so_that_no_address_need_be_known(dev: Recording) -> None:
    endpoint = dev["private-link-endpoint"].inputs
    assert endpoint["privateLinkServiceUrl"] == "pyroscope.gpuheap-dev.internal"
    assert dev.outputs["pyroscopeUrl"] == "http://pyroscope.gpuheap-dev.internal:4040"
    assert endpoint["privateLinkResourceId"] == SERVICE_ID
    assert "groupIds" not in endpoint, "a Private Link Service has none"


def test_the_endpoint_waits_for_the_service_and_for_grafanas_other_changes(dev: Recording) -> None:
    assert {"pyroscope-private-link", "grafana-reads-metrics", "grafana-administrator"} <= dev[
        "private-link-endpoint"
    ].needs


def test_regions_are_those_of_grafana_and_of_the_cluster(existing: Recording) -> None:
    endpoint = existing["private-link-endpoint"].inputs
    assert endpoint["location"] == "swedencentral"
    assert endpoint["privateLinkResourceRegion"] == "northeurope"


def test_the_approval_looks_for_the_message_that_the_endpoint_sends(dev: Recording) -> None:
    sent = dev["private-link-endpoint"].inputs["requestMessage"]
    assert (
        dev["private-link-approval"].inputs["requestMessage"]
        == sent
        == "gpuheap gpuheap-dev/gpuheap-dev/gpuheap-dev"
    )
    assert dev["private-link-approval"].inputs["privateLinkServiceId"] == SERVICE_ID


def test_a_new_endpoint_of_the_same_name_is_approved_anew(dev: Recording) -> None:
    assert dev["private-link-endpoint"].request.deleteBeforeReplace
    (replaced_with,) = dev["private-link-approval"].request.replace_with
    assert replaced_with.endswith("::private-link-endpoint")
