# SPDX-License-Identifier: Apache-2.0
"""What is different on AKS Automatic: settings that it fixes, and deployment safeguards."""

from typing import Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Knowledge
from localcloud.azure.records import Json, Resource

# https://learn.microsoft.com/azure/aks/intro-aks-automatic
_FIXED_BY_AUTOMATIC: Final = (
    ("autoUpgradeProfile", "upgradeChannel", "stable"),
    ("autoUpgradeProfile", "nodeOSUpgradeChannel", "NodeImage"),
    ("nodeProvisioningProfile", "mode", "Auto"),
    ("nodeResourceGroupProfile", "restrictionLevel", "ReadOnly"),
    ("aadProfile", "enableAzureRBAC", True),
)


def provisions_nodes(cluster: Resource) -> bool:
    """Whether nodes come as pods need them: always on AKS Automatic."""
    profile = cluster.outputs.get("nodeProvisioningProfile") or {}
    return is_automatic(cluster.outputs) or profile.get("mode") == "Auto"


def is_automatic(properties: Json) -> bool:
    return bool((properties.get("sku") or {}).get("name") == "Automatic")


def check(inputs: Json) -> None:
    """Raises AzureError for a cluster whose inputs AKS Automatic would refuse."""
    for profile, key, fixed in _FIXED_BY_AUTOMATIC:
        given = (inputs.get(profile) or {}).get(key, fixed)
        if given != fixed:
            raise AzureError(
                400, "BadRequest", f"{profile}.{key} is {fixed} on AKS Automatic and cannot be {given}."
            )
    in_subnet = any(pool.get("vnetSubnetID") for pool in inputs.get("agentPoolProfiles", ()))
    if in_subnet and not (inputs.get("apiServerAccessProfile") or {}).get("subnetId"):
        raise AzureError(
            400,
            "BadRequest",
            "In a virtual network of its own, AKS Automatic needs apiServerAccessProfile.subnetId: a subnet that is"
            " delegated to Microsoft.ContainerService/managedClusters.",
        )


def _safeguard(_asked: Asked) -> Json:
    return {
        "provisioningState": "Succeeded",
        "systemExcludedNamespaces": ["kube-system", "gatekeeper-system"],
    }


def _safeguard_allowed(asked: Asked) -> None:
    cluster = asked.store.resource(asked.inputs["resourceUri"])
    if cluster is None or not is_automatic(cluster.outputs):
        raise AzureError(
            400,
            "NotSimulated",
            "The local cloud knows deployment safeguards on AKS Automatic; elsewhere they need the policy add-on.",
        )


KNOWN: Final = {
    "containerservice:DeploymentSafeguard": Knowledge(
        id="/{resourceUri}/providers/Microsoft.ContainerService/deploymentSafeguards/default",
        name="resourceUri",
        name_pattern=r"(?i)/subscriptions/.+/managedClusters/[^/]+",
        name_rule="the id of a cluster",
        computed=_safeguard,
        allowed=_safeguard_allowed,
    ),
}
