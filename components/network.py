# SPDX-License-Identifier: Apache-2.0
"""The virtual network of a new cluster: one subnet for nodes, one for the addresses of the Private Link
Service, and on AKS Automatic one for those of the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pulumi
from pulumi_azure_native import network as azure


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkArgs:
    resource_group_name: pulumi.Input[str]
    location: str
    virtual_network_name: str
    address_space: str
    node_subnet: str
    private_link_subnet: str
    api_server_subnet: str | None
    """None: the API server is outside, as that of a standard cluster is."""
    tags: Mapping[str, str] = field(default_factory=dict)


class Network(pulumi.ComponentResource):
    """A virtual network with the subnets `nodes`, `private-link` and, if asked for, `api-server`."""

    PRIVATE_LINK_SUBNET: Final = "private-link"

    node_subnet_id: pulumi.Output[str]
    private_link_subnet: azure.Subnet
    api_server_subnet_id: pulumi.Output[str] | None = None

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Network", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        virtual_network = azure.VirtualNetwork(
            name,
            resource_group_name=args.resource_group_name,
            virtual_network_name=args.virtual_network_name,
            location=args.location,
            address_space=azure.AddressSpaceArgs(address_prefixes=[args.address_space]),
            tags=args.tags,
            opts=child,
        )
        nodes = azure.Subnet(
            f"{name}-nodes",
            resource_group_name=args.resource_group_name,
            virtual_network_name=virtual_network.name,
            subnet_name="nodes",
            address_prefix=args.node_subnet,
            opts=child,
        )
        self.private_link_subnet = azure.Subnet(
            f"{name}-private-link",
            resource_group_name=args.resource_group_name,
            virtual_network_name=virtual_network.name,
            subnet_name=self.PRIVATE_LINK_SUBNET,
            address_prefix=args.private_link_subnet,
            # AKS's cloud controller sets this when it makes the Private Link Service. The default, Enabled,
            # would turn it back.
            private_link_service_network_policies="Disabled",
            # Azure changes one subnet of a network at a time and answers 409 to a second.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[nodes]),
        )
        if args.api_server_subnet is not None:
            self.api_server_subnet_id = self._api_server_subnet(
                name, args, virtual_network, args.api_server_subnet
            ).id
        self.node_subnet_id = nodes.id
        self.register_outputs({"nodeSubnetId": self.node_subnet_id})

    def _api_server_subnet(
        self, name: str, args: NetworkArgs, virtual_network: azure.VirtualNetwork, address_prefix: str
    ) -> azure.Subnet:
        """Given to AKS, which puts the API server's addresses there.

        https://learn.microsoft.com/azure/aks/api-server-vnet-integration
        """
        return azure.Subnet(
            f"{name}-api-server",
            resource_group_name=args.resource_group_name,
            virtual_network_name=virtual_network.name,
            subnet_name="api-server",
            address_prefix=address_prefix,
            delegations=[
                azure.DelegationArgs(name="aks", service_name="Microsoft.ContainerService/managedClusters")
            ],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.private_link_subnet]),
        )
