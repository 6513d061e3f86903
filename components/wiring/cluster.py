# SPDX-License-Identifier: Apache-2.0
"""The cluster, new or existing, with the network and the maintenance windows of a new one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from components import source_ranges
from components.cluster import Cluster, ExistingClusterArgs, NewClusterArgs
from components.config import StackConfig
from components.inspektor_gadget import GADGET_NAMESPACE
from components.maintenance import MaintenanceWindows, MaintenanceWindowsArgs
from components.network import Network, NetworkArgs
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE
from components.settings.cluster import NewCluster
from components.settings.network import GivenSubnets, Subnets
from components.settings.network import Network as NetworkRanges

from .place import Place


def cluster(config: StackConfig, place: Place) -> Cluster:
    if isinstance(config.cluster, NewCluster):
        return _new(config, config.cluster, place)
    return Cluster(
        "cluster",
        ExistingClusterArgs(
            cluster_name=config.cluster.existing.name,
            resource_group_name=config.cluster.existing.resource_group,
            our_resource_group_id=place.resource_group.id,
            subscription_id=place.subscription_id,
            stack=config.name,
        ),
    )


def private_link_subnet_name(config: StackConfig) -> str | None:
    """The subnet, of the cluster's network, from which the Private Link Service gets its addresses."""
    if not isinstance(config.cluster, NewCluster):
        return config.private_link.subnet
    if isinstance(config.network, GivenSubnets):
        return config.network.existing.private_link_subnet
    return Network.PRIVATE_LINK_SUBNET


def private_link_ranges(config: StackConfig, cluster: Cluster) -> pulumi.Input[Sequence[str]]:
    """From where requests through the Private Link Service come: the ranges of its subnet."""
    if config.private_link.source_range is not None:
        return [config.private_link.source_range]
    if isinstance(config.cluster, NewCluster) and not isinstance(config.network, GivenSubnets):
        return [(config.network or NetworkRanges()).private_link_subnet]
    name = private_link_subnet_name(config)

    def look_up(nodes: str | None, pods: Sequence[str]) -> pulumi.Input[Sequence[str]]:
        if nodes is None:  # a network that AKS has made for itself, of which nothing is known
            return source_ranges.private_without(pods)
        return source_ranges.of_subnet(f"{nodes.rpartition('/')[0]}/{name}" if name else nodes)

    return pulumi.Output.all(cluster.node_subnet_id, cluster.pod_ranges).apply(lambda both: look_up(*both))


def _new(config: StackConfig, new: NewCluster, place: Place) -> Cluster:
    if isinstance(config.network, GivenSubnets):
        where = _given(config.network.existing)
    else:
        where = _own(config, config.network or NetworkRanges(), place, automatic=new.mode == "automatic")
    made = Cluster(
        "cluster",
        NewClusterArgs(
            cluster=new,
            resource_group_name=place.resource_group.name,
            resource_group_id=place.resource_group.id,
            subscription_id=place.subscription_id,
            location=config.location,
            stack=config.name,
            node_subnet_id=where.nodes,
            api_server_subnet_id=where.api_server,
            given_subnet_ids=where.given,
            depends_on=where.ready,
            deployer_id=place.deployer_id,
            deployer_type=place.deployer_type,
            unguarded_namespaces=[GADGET_NAMESPACE, AGENT_NAMESPACE],
            tags=config.tags,
        ),
    )
    MaintenanceWindows(
        "maintenance",
        MaintenanceWindowsArgs(
            cluster_name=new.name,
            resource_group_name=place.resource_group.name,
            maintenance=new.maintenance,
            depends_on=made.ready,
        ),
    )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """The subnets of a new cluster."""

    nodes: pulumi.Input[str]
    api_server: pulumi.Input[str] | None
    given: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[pulumi.Resource] = ()


def _given(subnets: Subnets) -> _Where:
    network = subnets.node_subnet_id.rpartition("/subnets/")[0]
    given = {
        "nodes": subnets.node_subnet_id,
        "private-link": f"{network}/subnets/{subnets.private_link_subnet}",
    }
    if subnets.api_server_subnet_id is not None:
        given["api-server"] = subnets.api_server_subnet_id
    return _Where(nodes=subnets.node_subnet_id, api_server=subnets.api_server_subnet_id, given=given)


def _own(config: StackConfig, ranges: NetworkRanges, place: Place, *, automatic: bool) -> _Where:
    network = Network(
        "network",
        NetworkArgs(
            resource_group_name=place.resource_group.name,
            location=config.location,
            virtual_network_name=config.name,
            address_space=ranges.address_space,
            node_subnet=ranges.node_subnet,
            private_link_subnet=ranges.private_link_subnet,
            api_server_subnet=ranges.api_server_range if automatic else None,
            tags=config.tags,
        ),
    )
    return _Where(
        nodes=network.node_subnet_id,
        api_server=network.api_server_subnet_id,
        ready=[network.private_link_subnet],
    )
