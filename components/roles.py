# SPDX-License-Identifier: Apache-2.0
"""Azure's built-in roles that the stack assigns, and the one way in which it assigns them.

Ids: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
"""

import uuid
from typing import Final

import pulumi
from pulumi_azure_native import authorization

AKS_RBAC_CLUSTER_ADMIN: Final = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
ACR_PULL: Final = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
GRAFANA_ADMIN: Final = "22926164-76b3-42b3-bc55-97df8dab3e41"
MONITORING_DATA_READER: Final = "b0d8363b-8ddd-447d-831f-62ca05bff136"
NETWORK_CONTRIBUTOR: Final = "4d97b98b-1d4f-4787-a291-c67834d212e7"
STORAGE_BLOB_DATA_CONTRIBUTOR: Final = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"

# The application with which a person who ran `az login` gets tokens. Any other one is a service principal's
# own.
# https://learn.microsoft.com/troubleshoot/entra/entra-id/governance/verify-first-party-apps-sign-in
AZURE_CLI_APPLICATION: Final = "04b07795-8ddb-461a-bbee-02f9e1bf7b46"

_NAMES: Final = uuid.UUID("6f1f1f0e-5d8f-4b53-9f0e-0b8a3f7c7a11")
"""Namespace of our assignments' names. A change would replace every assignment of every stack."""


def assign(
    name: str,
    *,
    role: str,
    principal_id: pulumi.Input[str],
    principal_type: pulumi.Input[str],
    subscription_id: pulumi.Input[str],
    scope: pulumi.Input[str],
    stack: str,
    opts: pulumi.ResourceOptions,
) -> authorization.RoleAssignment:
    """Gives `principal_id` the role at `scope`.

    The assignment's GUID follows from its name in the program, so that two previews are equal.
    `principal_type` keeps Azure from looking the principal up, which fails for an identity that was made
    seconds ago.
    """
    definition = pulumi.Output.from_input(subscription_id).apply(
        lambda subscription: (
            f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}"
        )
    )
    guid = pulumi.Output.from_input(subscription_id).apply(
        lambda subscription: str(uuid.uuid5(_NAMES, f"{subscription}/{stack}/{name}"))
    )
    return authorization.RoleAssignment(
        name,
        role_assignment_name=guid,
        principal_id=principal_id,
        principal_type=principal_type,
        role_definition_id=definition,
        scope=scope,
        opts=opts,
    )
