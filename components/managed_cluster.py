# SPDX-License-Identifier: Apache-2.0
"""The properties of a new AKS cluster: what both kinds share, and in what Standard and Automatic differ.

Automatic fixes much of what is said here for Standard. Where it does, the same value is said again, so that a
preview shows what the cluster is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
from pulumi_azure_native import containerservice

from .settings.cluster import STANDARD_UPGRADE_CHANNEL, NewCluster
from .settings.network import POD_RANGE, SERVICE_RANGE

NODE_IMAGE_CHANNEL: Final = "NodeImage"
"""GPU drivers come with the image of a node: only whole images may change."""

AUTOMATIC_UPGRADE_CHANNEL: Final = "stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedClusterArgs:
    cluster: NewCluster
    resource_group_name: pulumi.Input[str]
    location: str
    identity_id: pulumi.Input[str]
    node_subnet_id: pulumi.Input[str]
    api_server_subnet_id: pulumi.Input[str] | None
    """For AKS Automatic alone."""
    tags: Mapping[str, str] = field(default_factory=dict)


def managed_cluster(
    name: str, args: ManagedClusterArgs, *, parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource]
) -> containerservice.ManagedCluster:
    cluster = args.cluster
    return containerservice.ManagedCluster(
        name,
        resource_group_name=args.resource_group_name,
        resource_name_=cluster.name,
        location=args.location,
        kubernetes_version=cluster.kubernetes_version,
        dns_prefix=cluster.name,
        node_resource_group=f"{cluster.name}-nodes",
        identity=containerservice.ManagedClusterIdentityArgs(
            type=containerservice.ResourceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[args.identity_id],
        ),
        agent_pool_profiles=[_system_pool(args)],
        # Inspektor Gadget installs a PodMonitor whose definition comes with this add-on.
        azure_monitor_profile=containerservice.ManagedClusterAzureMonitorProfileArgs(
            metrics=containerservice.ManagedClusterAzureMonitorProfileMetricsArgs(enabled=True)
        ),
        network_profile=_network_profile(),
        # Pods get Azure's rights by these two, without a secret.
        oidc_issuer_profile=containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
        security_profile=containerservice.ManagedClusterSecurityProfileArgs(
            workload_identity=containerservice.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True)
        ),
        **_access(cluster),
        **(_automatic(args) if cluster.mode == "automatic" else _standard(cluster)),
        tags=args.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=depends_on,
            protect=cluster.protect,
            # Azure lists every pool here, also those that are resources of their own.
            ignore_changes=["agentPoolProfiles"],
        ),
    )


def _standard(cluster: NewCluster) -> dict[str, Any]:
    return {
        "sku": containerservice.ManagedClusterSKUArgs(name="Base", tier="Standard"),
        "auto_upgrade_profile": containerservice.ManagedClusterAutoUpgradeProfileArgs(
            upgrade_channel=cluster.upgrade_channel or STANDARD_UPGRADE_CHANNEL,
            node_os_upgrade_channel=NODE_IMAGE_CHANNEL,
        ),
    }


def _automatic(args: ManagedClusterArgs) -> dict[str, Any]:
    return {
        "sku": containerservice.ManagedClusterSKUArgs(name="Automatic", tier="Standard"),
        "auto_upgrade_profile": containerservice.ManagedClusterAutoUpgradeProfileArgs(
            upgrade_channel=AUTOMATIC_UPGRADE_CHANNEL, node_os_upgrade_channel=NODE_IMAGE_CHANNEL
        ),
        "node_provisioning_profile": containerservice.ManagedClusterNodeProvisioningProfileArgs(mode="Auto"),
        "node_resource_group_profile": containerservice.ManagedClusterNodeResourceGroupProfileArgs(
            restriction_level="ReadOnly"
        ),
        "api_server_access_profile": containerservice.ManagedClusterAPIServerAccessProfileArgs(
            enable_vnet_integration=True, subnet_id=args.api_server_subnet_id
        ),
    }


def _access(cluster: NewCluster) -> dict[str, Any]:
    if not cluster.entra_only:
        return {}
    return {
        "aad_profile": containerservice.ManagedClusterAADProfileArgs(managed=True, enable_azure_rbac=True),
        "disable_local_accounts": True,
    }


def _system_pool(args: ManagedClusterArgs) -> containerservice.ManagedClusterAgentPoolProfileArgs:
    """Untainted: what needs no GPU has nowhere else to run."""
    return containerservice.ManagedClusterAgentPoolProfileArgs(
        name="system",
        mode="System",
        count=args.cluster.system_pool.count,
        vm_size=args.cluster.system_pool.vm_size,
        os_type="Linux",
        type="VirtualMachineScaleSets",
        vnet_subnet_id=args.node_subnet_id,
    )


def _network_profile() -> containerservice.ContainerServiceNetworkProfileArgs:
    return containerservice.ContainerServiceNetworkProfileArgs(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        load_balancer_sku="standard",
        pod_cidr=str(POD_RANGE),
        service_cidr=str(SERVICE_RANGE),
        dns_service_ip=str(SERVICE_RANGE[10]),
    )
