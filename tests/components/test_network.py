# SPDX-License-Identifier: Apache-2.0
"""The network of a new cluster."""

from tests.components.recorder import Recording


def test_the_private_link_subnet_is_as_the_cloud_controller_wants_it(dev: Recording) -> None:
    subnet = dev["network-private-link"].inputs
    assert subnet["subnetName"] == "private-link"
    assert subnet["privateLinkServiceNetworkPolicies"] == "Disabled", (
        "Azure's default would be turned back and forth"
    )


def test_subnets_are_made_one_after_the_other(dev: Recording) -> None:
    assert "network-nodes" in dev["network-private-link"].needs
