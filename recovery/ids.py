# SPDX-License-Identifier: Apache-2.0
"""Which resource of the cloud an unfinished creation may have made: its id, from what the program asked for.

Only of types that are created under a name and refuse to be created again. The others do no harm: the Kubernetes
provider applies objects that exist (server-side apply), our dynamic providers look before they make, and random values
and images are made anew.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

# From each type's "Import" section, https://www.pulumi.com/registry/packages/azure-native/api-docs/
_GROUP: Final = "/subscriptions/{subscription}/resourceGroups/{resourceGroupName}"
_AKS: Final = f"{_GROUP}/providers/Microsoft.ContainerService/managedClusters/{{resourceName}}"
_NETWORK: Final = f"{_GROUP}/providers/Microsoft.Network/virtualNetworks/{{virtualNetworkName}}"
_PRIVATE_ENDPOINT: Final = f"{_GROUP}/providers/Microsoft.Network/privateEndpoints/{{privateEndpointName}}"
_ZONE: Final = f"{_GROUP}/providers/Microsoft.Network/privateDnsZones/{{privateZoneName}}"
_GRAFANA: Final = f"{_GROUP}/providers/Microsoft.Dashboard/grafana/{{workspaceName}}"
_IDENTITY: Final = f"{_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}"
_STORAGE: Final = f"{_GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}"
_INSIGHTS: Final = "providers/Microsoft.Insights"
_EXTENSIONS: Final = "providers/Microsoft.KubernetesConfiguration/extensions/{extensionName}"

AZURE: Final[Mapping[str, str]] = {
    "resources:ResourceGroup": _GROUP,
    "network:VirtualNetwork": _NETWORK,
    "network:Subnet": f"{_NETWORK}/subnets/{{subnetName}}",
    "network:PrivateEndpoint": _PRIVATE_ENDPOINT,
    "network:PrivateDnsZoneGroup": f"{_PRIVATE_ENDPOINT}/privateDnsZoneGroups/{{privateDnsZoneGroupName}}",
    "privatedns:PrivateZone": _ZONE,
    "privatedns:VirtualNetworkLink": f"{_ZONE}/virtualNetworkLinks/{{virtualNetworkLinkName}}",
    "managedidentity:UserAssignedIdentity": _IDENTITY,
    "managedidentity:FederatedIdentityCredential": (
        f"{_IDENTITY}/federatedIdentityCredentials/{{federatedIdentityCredentialResourceName}}"
    ),
    "storage:StorageAccount": _STORAGE,
    "storage:BlobContainer": f"{_STORAGE}/blobServices/default/containers/{{containerName}}",
    "authorization:RoleAssignment": (
        "/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}"
    ),
    "containerservice:ManagedCluster": _AKS,
    "containerservice:AgentPool": f"{_AKS}/agentPools/{{agentPoolName}}",
    "containerservice:MaintenanceConfiguration": f"{_AKS}/maintenanceConfigurations/{{configName}}",
    "containerservice:DeploymentSafeguard": (
        "/{resourceUri}/providers/Microsoft.ContainerService/deploymentSafeguards/default"
    ),
    "kubernetesconfiguration:Extension": (
        f"{_GROUP}/providers/{{clusterRp}}/{{clusterResourceName}}/{{clusterName}}/{_EXTENSIONS}"
    ),
    "monitor:AzureMonitorWorkspace": f"{_GROUP}/providers/Microsoft.Monitor/accounts/{{azureMonitorWorkspaceName}}",
    "monitor:DataCollectionEndpoint": (
        f"{_GROUP}/{_INSIGHTS}/dataCollectionEndpoints/{{dataCollectionEndpointName}}"
    ),
    "monitor:DataCollectionRule": f"{_GROUP}/{_INSIGHTS}/dataCollectionRules/{{dataCollectionRuleName}}",
    "monitor:DataCollectionRuleAssociation": (
        f"/{{resourceUri}}/{_INSIGHTS}/dataCollectionRuleAssociations/{{associationName}}"
    ),
    "monitor:ActionGroup": f"{_GROUP}/{_INSIGHTS}/actionGroups/{{actionGroupName}}",
    "monitor:ActivityLogAlert": f"{_GROUP}/{_INSIGHTS}/activityLogAlerts/{{activityLogAlertName}}",
    "alertsmanagement:PrometheusRuleGroup": (
        f"{_GROUP}/providers/Microsoft.AlertsManagement/prometheusRuleGroups/{{ruleGroupName}}"
    ),
    "dashboard:Grafana": _GRAFANA,
    "dashboard:ManagedPrivateEndpoint": f"{_GRAFANA}/managedPrivateEndpoints/{{managedPrivateEndpointName}}",
}
"""By type, the template of an id: `{...}` are inputs, `{subscription}` is the one that the provider works in."""

HELM_RELEASE: Final = "kubernetes:helm.sh/v3:Release"


class UnknownType(Exception):
    """There is no template for a type of azure-native; the text is the type."""


def physical_id(kind: str, inputs: Mapping[str, Any], subscription: str) -> str | None:
    """The id of what may have been made; None where making it once more is fine. Raises UnknownType."""
    package, _, token = kind.partition(":")
    if kind == HELM_RELEASE:
        return f"{inputs.get('namespace', 'default')}/{inputs['name']}"
    if package != "azure-native":
        return None
    # Another API version stands between module and name: azure-native:network/v20240501:Subnet.
    template = AZURE.get(re.sub(r"/v\w+:", ":", token))
    if template is None:
        raise UnknownType(kind)
    values = {name: str(value).strip("/") for name, value in inputs.items()}
    return template.format(**{**values, "subscription": subscription})
