# SPDX-License-Identifier: Apache-2.0
"""Resource groups, identities, roles, registries."""

from typing import Any, Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import TENANT, Asked, Knowledge, guid
from localcloud.azure.records import Json

GROUP: Final = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
RESOURCE_GROUP: Final = "azure-native:resources:ResourceGroup"
ROLE_ASSIGNMENT: Final = "azure-native:authorization:RoleAssignment"


def system_identity(asked: Asked) -> Json:
    """The `identity` of a resource that asked for one: Azure adds who it is."""
    wanted: dict[str, Any] | None = asked.inputs.get("identity")
    if not wanted:
        return {}
    identity = dict(wanted)
    if "SystemAssigned" in wanted.get("type", ""):
        identity |= {"principalId": guid(asked.id, "principal"), "tenantId": TENANT}
    if assigned := wanted.get("userAssignedIdentities"):
        identity["userAssignedIdentities"] = {id: _user_assigned(asked, id) for id in assigned}
    return {"identity": identity}


def _user_assigned(asked: Asked, id: str) -> Json:
    found = asked.store.resource(id)
    outputs = found.outputs if found else {}
    return {"clientId": outputs.get("clientId", ""), "principalId": outputs.get("principalId", "")}


def _user_assigned_identity(asked: Asked) -> Json:
    return {
        "clientId": guid(asked.id, "client"),
        "principalId": guid(asked.id, "principal"),
        "tenantId": TENANT,
    }


def _role_assignment(asked: Asked) -> Json:
    return {
        "scope": "/" + asked.inputs["scope"].strip("/"),
        "principalType": asked.inputs.get("principalType", "User"),
        "createdOn": "2026-01-01T00:00:00.0000000Z",
        "updatedOn": "2026-01-01T00:00:00.0000000Z",
        "createdBy": guid("deployer"),
        "updatedBy": guid("deployer"),
    }


def _one_assignment(asked: Asked) -> None:
    """One assignment for each principal, role and scope; and Entra must know the principal, which takes it a while."""
    if asked.before is None and not asked.inputs.get("principalType"):
        principal = asked.inputs["principalId"].replace("-", "")
        raise AzureError(
            400,
            "PrincipalNotFound",
            f"Principal {principal} does not exist in the directory {TENANT}. If you are creating this principal"
            " and then immediately assigning a role, this error might be related to a replication delay. In this"
            " case, set the role assignment principalType property to a value, such as ServicePrincipal.",
        )
    for other in asked.store.resources(token=ROLE_ASSIGNMENT):
        if other.id.lower() != asked.id.lower() and _triple(other.inputs) == _triple(asked.inputs):
            raise AzureError(
                409,
                "RoleAssignmentExists",
                f"The role assignment already exists. The ID of the conflicting role assignment is {other.name}.",
            )


def _triple(inputs: Json) -> tuple[str, ...]:
    return tuple(
        str(inputs.get(key, "")).strip("/").lower() for key in ("principalId", "roleDefinitionId", "scope")
    )


def _registry(asked: Asked) -> Json:
    return {
        "loginServer": f"{asked.name.lower()}.azurecr.io",
        "creationDate": "2026-01-01T00:00:00.0000000Z",
        "provisioningState": "Succeeded",
        "privateEndpointConnections": [],
        "status": {"displayStatus": "Ready", "message": "", "timestamp": ""},
        **system_identity(asked),
    }


KNOWN: Final = {
    "resources:ResourceGroup": Knowledge(
        id=GROUP,
        name="resourceGroupName",
        name_pattern=r"[\w().-]{0,89}[\w()-]",
        name_rule="1 to 90 letters, digits, underscores, parentheses, hyphens and periods, no period at the end",
        computed=lambda asked: {"properties": {"provisioningState": "Succeeded"}},
    ),
    "managedidentity:UserAssignedIdentity": Knowledge(
        id=f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}",
        name="resourceName",
        name_pattern=r"[A-Za-z0-9][\w-]{2,127}",
        name_rule="3 to 128 letters, digits, hyphens and underscores, the first no hyphen or underscore",
        computed=_user_assigned_identity,
    ),
    "authorization:RoleAssignment": Knowledge(
        id="/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        name="roleAssignmentName",
        name_pattern=r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        name_rule="a GUID",
        named_by_guid=True,
        replaces=frozenset({"principalId", "roleDefinitionId", "principalType"}),
        computed=_role_assignment,
        allowed=_one_assignment,
    ),
    "containerregistry:Registry": Knowledge(
        id=f"{GROUP}/providers/Microsoft.ContainerRegistry/registries/{{registryName}}",
        name="registryName",
        name_pattern=r"[A-Za-z0-9]{5,50}",
        name_rule="5 to 50 letters and digits",
        computed=_registry,
    ),
}
