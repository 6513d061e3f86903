# SPDX-License-Identifier: Apache-2.0
"""The way from a private network to Grafana: a private endpoint of the workspace, and the zone in which its name leads
there.

https://learn.microsoft.com/azure/managed-grafana/how-to-set-up-private-access
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
from pulumi_azure_native import network, privatedns

from .settings.grafana import ZONE

GROUP: Final = "grafana"
"""What of a workspace a private endpoint can lead to: there is nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSubnet:
    """A subnet to be made in the stack's own network."""

    network_name: str
    address_range: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrafanaAccessArgs:
    stack: str
    resource_group_name: pulumi.Input[str]
    workspace_id: pulumi.Input[str]
    subnet: OwnSubnet | str
    """One of ours, or the id of one that is there."""
    location: pulumi.Input[str]
    dns_zone: str
    """`new`, `none`, or the id of a zone that is there."""
    networks: Sequence[str]
    """Ids of further networks that a new zone is linked to."""
    depends_on: Sequence[pulumi.Resource]
    """Other changes of the network and of the workspace: Azure answers 409 to a second one at the same time."""
    tags: Mapping[str, str] = field(default_factory=dict)


class GrafanaAccess(pulumi.ComponentResource):
    """A private endpoint in a subnet, and the workspace's name in a private zone."""

    SUBNET: Final = "private-endpoints"

    endpoint: network.PrivateEndpoint
    ready: tuple[pulumi.Resource, ...]
    """What must be there before the workspace is spoken to."""

    def __init__(
        self, name: str, args: GrafanaAccessArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:GrafanaAccess", name, {}, opts)
        subnet_id = self._subnet_id(name, args)
        self.endpoint = network.PrivateEndpoint(
            f"{name}-endpoint",
            resource_group_name=args.resource_group_name,
            private_endpoint_name=f"{args.stack}-grafana",
            location=args.location,
            subnet=network.SubnetArgs(id=subnet_id),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=GROUP, private_link_service_id=args.workspace_id, group_ids=[GROUP]
                )
            ],
            tags=args.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=args.depends_on,
                # A connection that was rejected or removed never comes back: only a new endpoint asks for another. The
                # state is part of the connection, so a refresh that finds another one is a change of it.
                replace_on_changes=["privateLinkServiceConnections"],
                # The workspace's name must lead to one endpoint, and the record goes with its own.
                delete_before_replace=True,
            ),
        )
        self.ready = (self.endpoint, *self._names(name, args, subnet_id))
        self.register_outputs({"endpointId": self.endpoint.id})

    def _subnet_id(self, name: str, args: GrafanaAccessArgs) -> pulumi.Input[str]:
        if isinstance(args.subnet, str):
            return args.subnet
        return network.Subnet(
            f"{name}-subnet",
            resource_group_name=args.resource_group_name,
            virtual_network_name=args.subnet.network_name,
            subnet_name=self.SUBNET,
            address_prefix=args.subnet.address_range,
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        ).id

    def _names(
        self, name: str, args: GrafanaAccessArgs, subnet_id: pulumi.Input[str]
    ) -> Sequence[pulumi.Resource]:
        """The workspace's name, for whom the zone is there. Azure writes and removes the record itself."""
        if args.dns_zone == "none":
            return ()
        zone_id: pulumi.Input[str] = args.dns_zone
        links: Sequence[pulumi.Resource] = ()
        if args.dns_zone == "new":
            zone = privatedns.PrivateZone(
                f"{name}-zone",
                resource_group_name=args.resource_group_name,
                private_zone_name=ZONE,
                location="global",
                tags=args.tags,
                opts=pulumi.ResourceOptions(parent=self),
            )
            zone_id = zone.id
            links = [
                self._link(f"{name}-link-{label}", args, zone, label, network_id)
                for label, network_id in _linked(args, subnet_id).items()
            ]
        group = network.PrivateDnsZoneGroup(
            f"{name}-record",
            resource_group_name=args.resource_group_name,
            private_endpoint_name=self.endpoint.name,
            private_dns_zone_group_name="default",
            private_dns_zone_configs=[
                network.PrivateDnsZoneConfigArgs(name=GROUP, private_dns_zone_id=zone_id)
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
        return (group, *links)

    def _link(
        self,
        name: str,
        args: GrafanaAccessArgs,
        zone: privatedns.PrivateZone,
        label: str,
        network_id: pulumi.Input[str],
    ) -> privatedns.VirtualNetworkLink:
        return privatedns.VirtualNetworkLink(
            name,
            resource_group_name=args.resource_group_name,
            private_zone_name=zone.name,
            virtual_network_link_name=label,
            location="global",
            # Names of machines are no business of this zone.
            registration_enabled=False,
            virtual_network=privatedns.SubResourceArgs(id=network_id),
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def _linked(args: GrafanaAccessArgs, subnet_id: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """The networks that a new zone is linked to, by what the link is called."""
    if isinstance(args.subnet, str):
        given = [network_of(args.subnet), *args.networks]
        return {label(network_id): network_id for network_id in given}
    own = pulumi.Output.from_input(subnet_id).apply(network_of)
    return {"own": own, **{label(network_id): network_id for network_id in args.networks}}


def network_of(subnet_id: str) -> str:
    return subnet_id.rpartition("/subnets/")[0]


def label(network_id: str) -> str:
    """A network's name, and something of its id: networks of two groups may have one name."""
    return f"{network_id.rpartition('/')[2]}-{hashlib.sha256(network_id.lower().encode()).hexdigest()[:6]}"
