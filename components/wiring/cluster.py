# SPDX-License-Identifier: Apache-2.0
"""The cluster, new or existing, with the network of a new one."""

from components.cluster import Cluster, ExistingClusterArgs, NewClusterArgs
from components.config import StackConfig
from components.network import Network, NetworkArgs
from components.settings.cluster import NewCluster
from components.settings.network import Network as NetworkRanges

from .place import Place


def cluster(config: StackConfig, place: Place) -> Cluster:
    if not isinstance(config.cluster, NewCluster):
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
    ranges = config.network or NetworkRanges()
    network = Network(
        "network",
        NetworkArgs(
            resource_group_name=place.resource_group.name,
            location=config.location,
            virtual_network_name=config.name,
            address_space=ranges.address_space,
            node_subnet=ranges.node_subnet,
            private_link_subnet=ranges.private_link_subnet,
            tags=config.tags,
        ),
    )
    return Cluster(
        "cluster",
        NewClusterArgs(
            cluster_name=config.cluster.name,
            resource_group_name=place.resource_group.name,
            resource_group_id=place.resource_group.id,
            subscription_id=place.subscription_id,
            location=config.location,
            stack=config.name,
            node_subnet_id=network.node_subnet_id,
            depends_on=[network.private_link_subnet],
            system_vm_size=config.cluster.system_pool.vm_size,
            system_count=config.cluster.system_pool.count,
            kubernetes_version=config.cluster.kubernetes_version,
            tags=config.tags,
        ),
    )
