# SPDX-License-Identifier: Apache-2.0
"""The private way from Managed Grafana to Pyroscope: Grafana's endpoint, and the approval of exactly that
connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import dashboard

from .azure.providers import PrivateEndpointApproval


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateLinkArgs:
    endpoint_name: str
    domain: str
    grafana_name: str
    grafana_resource_group_name: pulumi.Input[str]
    grafana_location: pulumi.Input[str]
    service_id: pulumi.Input[str]
    service_location: pulumi.Input[str]
    request_message: str
    """What the connection carries as its description: by it the approval knows which one is ours."""
    depends_on: Sequence[pulumi.Resource]
    """The load-balancer Service, complete when the Private Link Service exists, and changes of the workspace
    that must not run at the same time: Azure answers 409 to a second one.
    """


class PrivateLink(pulumi.ComponentResource):
    """A managed private endpoint whose connection is approved and known to Grafana."""

    endpoint: dashboard.ManagedPrivateEndpoint
    approval: PrivateEndpointApproval

    def __init__(self, name: str, args: PrivateLinkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:PrivateLink", name, {}, opts)
        self.endpoint = dashboard.ManagedPrivateEndpoint(
            f"{name}-endpoint",
            resource_group_name=args.grafana_resource_group_name,
            workspace_name=args.grafana_name,
            managed_private_endpoint_name=args.endpoint_name,
            location=args.grafana_location,
            private_link_resource_id=args.service_id,
            private_link_resource_region=args.service_location,
            # Grafana resolves this name to the endpoint's address, so the URL of the data source is known
            # before the address is.
            private_link_service_url=args.domain,
            request_message=args.request_message,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=args.depends_on,
                # Nothing in it can be changed in place, and the name is taken as long as the old one is
                # there.
                delete_before_replace=True,
            ),
        )
        self.approval = PrivateEndpointApproval(
            f"{name}-approval",
            managed_private_endpoint_id=self.endpoint.id,
            private_link_service_id=args.service_id,
            request_message=args.request_message,
            # A new endpoint of the same name has the same id, but a connection that nobody has approved.
            opts=pulumi.ResourceOptions(parent=self, replace_with=[self.endpoint]),
        )
        self.register_outputs({"endpointId": self.endpoint.id})


def private_link_service_id(subscription_id: str, resource_group_name: str, name: str) -> str:
    """The id under which the cloud controller makes the service: known before the service is."""
    return (
        f"/subscriptions/{subscription_id}/resourceGroups/{resource_group_name}"
        f"/providers/Microsoft.Network/privateLinkServices/{name}"
    )
