# SPDX-License-Identifier: Apache-2.0
"""The AKS cluster, new or existing, who may do what with it, and the Kubernetes provider through which the rest
reaches it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import authorization, containerservice, managedidentity

from .managed_cluster import ManagedClusterArgs, managed_cluster
from .roles import AKS_RBAC_CLUSTER_ADMIN, NETWORK_CONTRIBUTOR, assign
from .settings.cluster import NewCluster

GPU_RESOURCE: Final = "nvidia.com/gpu"
GPU_TAINT_KEY: Final = "nvidia.com/gpu"
GPU_NODE_LABELS: Final = {"kubernetes.azure.com/accelerator": "nvidia"}
"""AKS puts this label on every node with an NVIDIA GPU: https://learn.microsoft.com/azure/aks/use-labels"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClusterArgs:
    cluster: NewCluster
    resource_group_name: pulumi.Input[str]
    resource_group_id: pulumi.Input[str]
    subscription_id: pulumi.Input[str]
    location: str
    stack: str
    node_subnet_id: pulumi.Input[str]
    api_server_subnet_id: pulumi.Input[str] | None = None
    """For AKS Automatic alone."""
    given_subnet_ids: Mapping[str, str] = field(default_factory=dict)
    """Subnets outside of our resource group, by what they are for."""
    depends_on: Sequence[pulumi.Resource]
    """The rest of the network: it must outlive the cluster, whose cloud controller uses it."""
    deployer_id: pulumi.Input[str]
    deployer_type: pulumi.Input[str]
    unguarded_namespaces: Sequence[str] = ()
    """Namespaces whose pods AKS Automatic's safeguards would refuse."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster_name(self) -> str:
        return self.cluster.name


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
    pod_ranges: pulumi.Input[Sequence[str]] = ()
    """Addresses of pods that are no part of the network; of a cluster that is there alone."""
    kubelet_object_id: pulumi.Output[str]
    oidc_issuer_url: pulumi.Output[str]
    """Who signs the tokens of service accounts; empty where the cluster has no such issuer."""
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
            # What is in our own cluster goes with it: one that was deleted by hand, or does not answer any
            # more, must not keep the rest from being destroyed. What is in another's would be left there.
            delete_unreachable=isinstance(args, NewClusterArgs),
            # An `up` that was killed, or whose answer got lost, does not know that an object was made: the next
            # one takes it as it is, under a field manager of another name.
            upsert_existing_objects=True,
            enable_patch_force=True,
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
        roles = self._network_roles(name, args, identity.principal_id)
        cluster = managed_cluster(
            name,
            ManagedClusterArgs(
                cluster=args.cluster,
                resource_group_name=args.resource_group_name,
                location=args.location,
                identity_id=identity.id,
                node_subnet_id=args.node_subnet_id,
                api_server_subnet_id=args.api_server_subnet_id,
                tags=args.tags,
            ),
            parent=self,
            depends_on=[*roles, *args.depends_on],
        )
        self.id = cluster.id
        self.location = args.location
        self.node_subnet_id = args.node_subnet_id
        self.kubelet_object_id = cluster.identity_profile.apply(_kubelet_object_id)
        self.oidc_issuer_url = cluster.oidc_issuer_profile.apply(_issuer_url)
        return [cluster, *self._access(name, args, cluster), *self._safeguards(name, args, cluster)]

    def _network_roles(
        self, name: str, args: NewClusterArgs, principal_id: pulumi.Input[str]
    ) -> list[pulumi.Resource]:
        """The cloud controller joins subnets, turns off the policies of one, and keeps the Private Link Service
        in our resource group: no narrower scope than that group has the right to make one.
        """
        scopes = {"contributor": args.resource_group_id, **args.given_subnet_ids}
        return [
            self._network_contributor(
                f"{name}-network-{what}", args.stack, args.subscription_id, scope, principal_id
            )
            for what, scope in scopes.items()
        ]

    def _access(
        self, name: str, args: NewClusterArgs, cluster: containerservice.ManagedCluster
    ) -> list[pulumi.Resource]:
        """Where only Azure's roles count, whoever deploys needs one."""
        if not args.cluster.entra_only:
            return []
        return [
            assign(
                f"{name}-administrator",
                role=AKS_RBAC_CLUSTER_ADMIN,
                principal_id=args.deployer_id,
                principal_type=args.deployer_type,
                subscription_id=args.subscription_id,
                scope=cluster.id,
                stack=args.stack,
                opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            )
        ]

    def _safeguards(
        self, name: str, args: NewClusterArgs, cluster: containerservice.ManagedCluster
    ) -> list[pulumi.Resource]:
        """AKS Automatic refuses pods that see the host, as profilers must: not in these namespaces."""
        if args.cluster.mode != "automatic":
            return []
        return [
            containerservice.DeploymentSafeguard(
                f"{name}-safeguards",
                resource_uri=cluster.id,
                level=containerservice.DeploymentSafeguardsLevel.ENFORCE,
                excluded_namespaces=list(args.unguarded_namespaces),
                opts=pulumi.ResourceOptions(parent=self),
            )
        ]

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
        self.pod_ranges = found.network_profile.apply(_pod_ranges)
        self.kubelet_object_id = found.identity_profile.apply(_kubelet_object_id)
        self.oidc_issuer_url = found.oidc_issuer_profile.apply(_issuer_url)
        return [
            self._network_contributor(
                f"{name}-network-contributor",
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
            name,
            role=NETWORK_CONTRIBUTOR,
            principal_id=principal_id,
            principal_type="ServicePrincipal",
            subscription_id=subscription_id,
            scope=scope,
            stack=stack,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )

    def _kubeconfig(self) -> pulumi.Output[str]:
        credentials = containerservice.list_managed_cluster_user_credentials_output(
            resource_group_name=self.resource_group_name,
            resource_name=self.cluster_name,
            # Counts where Entra is asked: the other form is one that Kubernetes clients no longer read.
            format="exec",
            opts=pulumi.InvokeOutputOptions(depends_on=list(self.ready)),
        )
        # Azure's provider does not mark the answer as a secret.
        return pulumi.Output.secret(
            credentials.kubeconfigs.apply(lambda files: base64.b64decode(files[0].value).decode())
        )


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


def _pod_ranges(profile: Any) -> Sequence[str]:
    return list((profile and (profile.pod_cidrs or [profile.pod_cidr])) or ())


def _issuer_url(profile: Any) -> str:
    return str((profile and profile.issuer_url) or "")
