# SPDX-License-Identifier: Apache-2.0
"""Where Pyroscope's microservices keep profiles: a container in Azure Blob, and the identity that may use it.

No key of the account is ever read: the pods show a token of the cluster, which the identity's federated credential
trusts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
from pulumi_azure_native import managedidentity, storage

from .pyroscope_values import ACCOUNT, CONTAINER
from .roles import STORAGE_BLOB_DATA_CONTRIBUTOR, assign


@dataclass(frozen=True, slots=True, kw_only=True)
class PyroscopeStorageArgs:
    account_name: str
    redundancy: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    subscription_id: pulumi.Input[str]
    namespace: str
    oidc_issuer_url: pulumi.Input[str]
    """Who signs the cluster's tokens."""
    tags: Mapping[str, str] = field(default_factory=dict)


class PyroscopeStorage(pulumi.ComponentResource):
    """A private container, and an identity of Pyroscope's pods with the right to its blobs."""

    client_id: pulumi.Output[str]
    ready: tuple[pulumi.Resource, ...]
    """What must be there before Pyroscope starts."""

    def __init__(
        self, name: str, args: PyroscopeStorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:PyroscopeStorage", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = self._account(name, args)
        container = storage.BlobContainer(
            f"{name}-container",
            resource_group_name=args.resource_group_name,
            account_name=account.name,
            container_name=CONTAINER,
            public_access=storage.PublicAccess.NONE,
            opts=child,
        )
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-identity",
            resource_group_name=args.resource_group_name,
            resource_name_=f"{args.stack}-pyroscope",
            location=args.location,
            tags=args.tags,
            opts=child,
        )
        trust = managedidentity.FederatedIdentityCredential(
            f"{name}-trust",
            resource_group_name=args.resource_group_name,
            resource_name_=identity.name,
            federated_identity_credential_resource_name="pyroscope",
            issuer=args.oidc_issuer_url,
            subject=f"system:serviceaccount:{args.namespace}:{ACCOUNT}",
            audiences=["api://AzureADTokenExchange"],
            opts=child,
        )
        role = assign(
            f"{name}-blobs",
            role=STORAGE_BLOB_DATA_CONTRIBUTOR,
            principal_id=identity.principal_id,
            principal_type="ServicePrincipal",
            subscription_id=args.subscription_id,
            # The container alone: nothing else in the account is Pyroscope's.
            scope=container.id,
            stack=args.stack,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.client_id = identity.client_id
        self.ready = (trust, role)
        self.register_outputs({"clientId": self.client_id})

    def _account(self, name: str, args: PyroscopeStorageArgs) -> storage.StorageAccount:
        return storage.StorageAccount(
            f"{name}-account",
            resource_group_name=args.resource_group_name,
            account_name=args.account_name,
            location=args.location,
            kind=storage.Kind.STORAGE_V2,
            sku=storage.SkuArgs(name=f"Standard_{args.redundancy}"),
            allow_blob_public_access=False,
            # With keys off, a leaked one is worth nothing, and none can end up in a state file.
            allow_shared_key_access=False,
            minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
            enable_https_traffic_only=True,
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
