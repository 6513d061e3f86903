# SPDX-License-Identifier: Apache-2.0
"""Storage accounts and their blob containers, and identities that trust a cluster's service accounts."""

from typing import Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Knowledge
from localcloud.azure.records import Json
from localcloud.azure.types_basic import GROUP

ACCOUNT: Final = "azure-native:storage:StorageAccount"
CREDENTIAL: Final = "azure-native:managedidentity:FederatedIdentityCredential"
CREDENTIALS_OF_AN_IDENTITY: Final = 20
"""https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations"""


def _account(asked: Asked) -> Json:
    host = f"https://{asked.name}.blob.core.windows.net/"
    return {
        "provisioningState": "Succeeded",
        "primaryEndpoints": {"blob": host},
        "primaryLocation": asked.inputs["location"],
        "statusOfPrimary": "available",
        "privateEndpointConnections": [],
        "creationTime": "2026-01-01T00:00:00.0000000Z",
    }


def _account_allowed(asked: Asked) -> None:
    """The name is a host name, which nobody else in Azure may have."""
    for other in asked.store.resources(token=ACCOUNT):
        if other.name == asked.name and other.id.lower() != asked.id.lower():
            raise AzureError(
                409, "StorageAccountAlreadyTaken", f"The storage account named {asked.name} is already taken."
            )


def _container(asked: Asked) -> Json:
    return {"publicAccess": asked.inputs.get("publicAccess", "None"), "leaseState": "Available"}


def _container_allowed(asked: Asked) -> None:
    account = asked.store.resource(asked.id.split("/blobServices/")[0])
    public = asked.inputs.get("publicAccess", "None") != "None"
    if public and account and account.outputs.get("allowBlobPublicAccess") is False:
        raise AzureError(409, "PublicAccessNotPermitted", "Public access is not permitted on this account.")


def _credential_allowed(asked: Asked) -> None:
    if not asked.inputs.get("issuer", "").startswith("https://"):
        raise AzureError(
            400, "BadRequest", f"issuer must be an https address; it is {asked.inputs.get('issuer')!r}."
        )
    if len(asked.inputs.get("audiences", ())) != 1:
        raise AzureError(400, "BadRequest", "audiences must have exactly one value.")
    identity = asked.id.split("/federatedIdentityCredentials/")[0]
    others = [
        one
        for one in asked.store.resources(token=CREDENTIAL, under=identity)
        if one.id.lower() != asked.id.lower()
    ]
    if len(others) >= CREDENTIALS_OF_AN_IDENTITY:
        raise AzureError(
            400, "BadRequest", f"an identity has at most {CREDENTIALS_OF_AN_IDENTITY} credentials."
        )
    for one in others:
        if all(one.inputs.get(key) == asked.inputs.get(key) for key in ("issuer", "subject")):
            raise AzureError(409, "Conflict", f"{one.name} has the same issuer and subject.")


KNOWN: Final = {
    "storage:StorageAccount": Knowledge(
        id=f"{GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}",
        name="accountName",
        name_pattern=r"[a-z0-9]{3,24}",
        name_rule="3 to 24 lower-case letters and digits",
        computed=_account,
        allowed=_account_allowed,
    ),
    "storage:BlobContainer": Knowledge(
        id=f"{GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}/blobServices/default"
        "/containers/{containerName}",
        name="containerName",
        name_pattern=r"[a-z0-9](-?[a-z0-9]){2,62}",
        name_rule="3 to 63 lower-case letters, digits and single hyphens, a letter or digit at both ends",
        computed=_container,
        allowed=_container_allowed,
    ),
    "managedidentity:FederatedIdentityCredential": Knowledge(
        id=f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}"
        "/federatedIdentityCredentials/{federatedIdentityCredentialResourceName}",
        name="federatedIdentityCredentialResourceName",
        name_pattern=r"[A-Za-z0-9][\w-]{2,119}",
        name_rule="3 to 120 letters, digits, hyphens and underscores, a letter or digit first",
        allowed=_credential_allowed,
    ),
}
