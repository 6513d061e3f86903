# SPDX-License-Identifier: Apache-2.0
"""Removes the Private Link Service when nobody else does, as a Pulumi resource.

The cluster's cloud controller makes it for a Kubernetes Service, in our resource group, and takes it away with that. A
cluster that was deleted by hand, or does not answer any more, leaves it behind, and then it holds its subnet. Like
`providers.py` in every way: users' states name the provider's class by this module's path.
"""

from typing import TYPE_CHECKING

import pulumi
from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.core.tools import parse_resource_id
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider

from .credentials import arm_endpoint, arm_scope, credential
from .patience import Patience
from .provider_state import Props, changed

if TYPE_CHECKING:
    from azure.mgmt.network import NetworkManagementClient


class PrivateLinkServiceRemovalProvider(ResourceProvider):
    """Makes nothing; deleting it removes what is there under the id, and that nothing is there is fine."""

    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        replaces = changed(_olds, _news, "privateLinkServiceId")
        return DiffResult(changes=bool(replaces), replaces=replaces)

    def create(self, props: Props) -> CreateResult:
        return CreateResult(props["privateLinkServiceId"], props)

    def delete(self, _id: str, _props: Props) -> None:
        from azure.mgmt.network import NetworkManagementClient  # loaded by who uses it: it takes seconds

        parts = parse_resource_id(_props["privateLinkServiceId"])
        patience = Patience()
        with NetworkManagementClient(
            credential=credential(),
            subscription_id=str(parts["subscription"]),
            base_url=arm_endpoint(),
            credential_scopes=[arm_scope()],
            retry_total=0,  # every repetition is `patience`'s, where it is bounded and seen
            polling_interval=patience.interval_seconds,
        ) as network:
            patience.wait(
                f"removal of the Private Link Service {parts['name']}",
                lambda: _remove(network, str(parts["resource_group"]), str(parts["name"])),
            )


class PrivateLinkServiceRemoval(Resource, module="gpuheap", name="PrivateLinkServiceRemoval"):
    """What the Kubernetes Service depends on, so that it is removed in between that and the cluster."""

    def __init__(
        self, name: str, *, private_link_service_id: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {"privateLinkServiceId": private_link_service_id}
        super().__init__(PrivateLinkServiceRemovalProvider(), name, inputs, opts)


def _remove(network: "NetworkManagementClient", resource_group: str, name: str) -> None:
    services = network.private_link_services
    try:
        found = services.get(resource_group_name=resource_group, service_name=name)
    except ResourceNotFoundError:
        return
    # Azure removes none that has connections.
    for connection in found.private_endpoint_connections or ():
        services.begin_delete_private_endpoint_connection(
            resource_group_name=resource_group,
            service_name=name,
            pe_connection_name=connection.name or "",
        ).result()
    services.begin_delete(resource_group_name=resource_group, service_name=name).result()
