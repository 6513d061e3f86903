# SPDX-License-Identifier: Apache-2.0
"""The AKS cluster, new or existing, the GPU pool in it, and the Kubernetes provider through which the rest
reaches it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import authorization, containerservice, managedidentity

from .roles import NETWORK_CONTRIBUTOR, assign
from .settings.network import POD_RANGE, SERVICE_RANGE

GPU_RESOURCE: Final = "nvidia.com/gpu"
GPU_TAINT_KEY: Final = "nvidia.com/gpu"
GPU_TAINT_VALUE: Final = "present"
GPU_NODE_LABELS: Final = {"kubernetes.azure.com/accelerator": "nvidia"}
"""AKS puts this label on every node with an NVIDIA GPU: https://learn.microsoft.com/azure/aks/use-labels"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClusterArgs:
    cluster_name: str
    resource_group_name: pulumi.Input[str]
    resource_group_id: pulumi.Input[str]
    subscription_id: pulumi.Input[str]
    location: str
    stack: str
    node_subnet_id: pulumi.Input[str]
    depends_on: Sequence[pulumi.Resource]
    """The rest of the network: it must outlive the cluster, whose cloud controller uses it."""
    system_vm_size: str
    system_count: int
    kubernetes_version: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingClusterArgs:
    cluster_name: str
    resource_group_name: str
    our_resource_group_id: pulumi.Input[str]
    subscription_id: pulumi.Input[str]
    stack: str


class Cluster(pulumi.ComponentResource):
    """An AKS cluster whose control plane may make a Private Link Service in our resource group."""

    cluster_name: str
    resource_group_name: pulumi.Input[str]
    id: pulumi.Output[str]
    location: pulumi.Input[str]
    node_subnet_id: pulumi.Input[str | None]
    kubelet_object_id: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider
    ready: Sequence[pulumi.Resource]
    """What must exist before anything can be put into the cluster."""

    def __init__(
        self,
        name: str,
        args: NewClusterArgs | ExistingClusterArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpuheap:index:Cluster", name, {}, opts)
        self.cluster_name = args.cluster_name
        self.resource_group_name = args.resource_group_name
        self.ready = (
            self._declare(name, args) if isinstance(args, NewClusterArgs) else self._look_up(name, args)
        )
        self.kubeconfig = self._kubeconfig()
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            # Certificates and addresses in the kubeconfig may change; as long as this does not, it is the
            # same cluster.
            cluster_identifier=pulumi.Output.concat(args.resource_group_name, "/", args.cluster_name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=self.ready),
        )
        self.register_outputs({"id": self.id})

    def _declare(self, name: str, args: NewClusterArgs) -> list[pulumi.Resource]:
        """A new cluster. Returns what must exist before it can be used."""
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-identity",
            resource_group_name=args.resource_group_name,
            resource_name_=f"{args.cluster_name}-control-plane",
            location=args.location,
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # The cloud controller joins the subnets and keeps the Private Link Service in our resource group.
        network_contributor = self._network_contributor(
            name, args.stack, args.subscription_id, args.resource_group_id, identity.principal_id
        )
        cluster = self._managed_cluster(name, args, identity, network_contributor)
        self.id = cluster.id
        self.location = args.location
        self.node_subnet_id = args.node_subnet_id
        self.kubelet_object_id = cluster.identity_profile.apply(_kubelet_object_id)
        return [cluster]

    def _look_up(self, name: str, args: ExistingClusterArgs) -> list[pulumi.Resource]:
        """A cluster that is there. Its control plane gets the one right that it needs for us."""
        found = containerservice.get_managed_cluster_output(
            resource_group_name=args.resource_group_name, resource_name=args.cluster_name
        )
        self.id = found.id
        self.location = found.location
        self.node_subnet_id = found.agent_pool_profiles.apply(
            lambda pools: pools[0].vnet_subnet_id if pools else None
        )
        self.kubelet_object_id = found.identity_profile.apply(_kubelet_object_id)
        return [
            self._network_contributor(
                name,
                args.stack,
                args.subscription_id,
                args.our_resource_group_id,
                found.identity.apply(_control_plane_principal),
            )
        ]

    def _network_contributor(
        self,
        name: str,
        stack: str,
        subscription_id: pulumi.Input[str],
        scope: pulumi.Input[str],
        principal_id: pulumi.Input[str],
    ) -> authorization.RoleAssignment:
        return assign(
            f"{name}-network-contributor",
            role=NETWORK_CONTRIBUTOR,
            principal_id=principal_id,
            principal_type="ServicePrincipal",
            subscription_id=subscription_id,
            scope=scope,
            stack=stack,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )

    def _managed_cluster(
        self,
        name: str,
        args: NewClusterArgs,
        identity: managedidentity.UserAssignedIdentity,
        network_contributor: pulumi.Resource,
    ) -> containerservice.ManagedCluster:
        return containerservice.ManagedCluster(
            name,
            resource_group_name=args.resource_group_name,
            resource_name_=args.cluster_name,
            location=args.location,
            sku=containerservice.ManagedClusterSKUArgs(name="Base", tier="Standard"),
            kubernetes_version=args.kubernetes_version,
            dns_prefix=args.cluster_name,
            node_resource_group=f"{args.cluster_name}-nodes",
            identity=containerservice.ManagedClusterIdentityArgs(
                type=containerservice.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[identity.id],
            ),
            agent_pool_profiles=[
                containerservice.ManagedClusterAgentPoolProfileArgs(
                    name="system",
                    mode="System",
                    count=args.system_count,
                    vm_size=args.system_vm_size,
                    os_type="Linux",
                    type="VirtualMachineScaleSets",
                    vnet_subnet_id=args.node_subnet_id,
                )
            ],
            auto_upgrade_profile=containerservice.ManagedClusterAutoUpgradeProfileArgs(
                upgrade_channel="patch", node_os_upgrade_channel="NodeImage"
            ),
            # Inspektor Gadget installs a PodMonitor whose definition comes with this add-on.
            azure_monitor_profile=containerservice.ManagedClusterAzureMonitorProfileArgs(
                metrics=containerservice.ManagedClusterAzureMonitorProfileMetricsArgs(enabled=True)
            ),
            network_profile=containerservice.ContainerServiceNetworkProfileArgs(
                network_plugin="azure",
                network_plugin_mode="overlay",
                network_dataplane="cilium",
                network_policy="cilium",
                load_balancer_sku="standard",
                pod_cidr=str(POD_RANGE),
                service_cidr=str(SERVICE_RANGE),
                dns_service_ip=str(SERVICE_RANGE[10]),
            ),
            tags=args.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[network_contributor, *args.depends_on],
                # Azure lists every pool here, also those that are resources of their own.
                ignore_changes=["agentPoolProfiles"],
            ),
        )

    def _kubeconfig(self) -> pulumi.Output[str]:
        credentials = containerservice.list_managed_cluster_user_credentials_output(
            resource_group_name=self.resource_group_name,
            resource_name=self.cluster_name,
            opts=pulumi.InvokeOutputOptions(depends_on=list(self.ready)),
        )
        # Azure's provider does not mark the answer as a secret.
        return pulumi.Output.secret(
            credentials.kubeconfigs.apply(lambda files: base64.b64decode(files[0].value).decode())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPoolArgs:
    pool_name: str
    cluster_name: str
    cluster_resource_group_name: pulumi.Input[str]
    vm_size: str
    count: int
    node_subnet_id: pulumi.Input[str | None]
    depends_on: Sequence[pulumi.Resource]
    tags: Mapping[str, str] = field(default_factory=dict)


class GpuPool(pulumi.ComponentResource):
    """Nodes with NVIDIA GPUs, tainted so that only pods which want a GPU run there."""

    def __init__(self, name: str, args: GpuPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:GpuPool", name, {}, opts)
        self.pool = containerservice.AgentPool(
            name,
            resource_group_name=args.cluster_resource_group_name,
            resource_name_=args.cluster_name,
            agent_pool_name=args.pool_name,
            mode="User",
            os_type="Linux",
            type="VirtualMachineScaleSets",
            vm_size=args.vm_size,
            count=args.count,
            vnet_subnet_id=args.node_subnet_id,
            node_taints=[f"{GPU_TAINT_KEY}={GPU_TAINT_VALUE}:NoSchedule"],
            gpu_profile=containerservice.GPUProfileArgs(driver="Install"),
            tags=args.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=args.depends_on,
                # Azure cannot change these in place, and azure-native would try.
                replace_on_changes=["gpuProfile", "osDiskType"],
                # A pool's name is its identity: the old one must be gone first.
                delete_before_replace=True,
            ),
        )
        self.register_outputs({"poolName": self.pool.name})


def _kubelet_object_id(profile: Mapping[str, Any] | None) -> str:
    """The object id of the identity with which nodes pull images."""
    identity = (profile or {}).get("kubeletidentity")
    object_id: str | None = getattr(identity, "object_id", None)
    if object_id is None and isinstance(identity, Mapping):
        object_id = identity.get("objectId")
    return object_id or ""


def _control_plane_principal(identity: Any) -> str:
    """The principal of a cluster's own identity, assigned by the system or by a user."""
    if identity is None:
        raise pulumi.RunError(
            "the existing cluster has no managed identity: az aks update --enable-managed-identity"
        )
    if identity.principal_id:
        return str(identity.principal_id)
    assigned = list((identity.user_assigned_identities or {}).values())
    return str(assigned[0].principal_id)
