# SPDX-License-Identifier: Apache-2.0
"""Azure Monitor: the workspace for metrics, and how they get there."""

from typing import Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Knowledge, guid, token_hex
from localcloud.azure.records import Json
from localcloud.azure.types_basic import GROUP

INSIGHTS: Final = f"{GROUP}/providers/Microsoft.Insights"
ASSOCIATION: Final = "azure-native:monitor:DataCollectionRuleAssociation"
ENDPOINT_ASSOCIATION: Final = "configurationAccessEndpoint"
"""The name that an association with an endpoint, in place of a rule, must have."""


def _workspace(asked: Asked) -> Json:
    location = asked.inputs["location"].replace(" ", "").lower()
    managed = (
        f"{asked.id.split('/resourceGroups/')[0]}/resourceGroups/MA_{asked.name}_{location}_managed/providers"
    )
    host = f"{asked.name.lower()}-{token_hex(asked.id)[:4]}.{location}.prometheus.monitor.azure.com"
    return {
        "accountId": guid(asked.id),
        "defaultIngestionSettings": {
            "dataCollectionEndpointResourceId": f"{managed}/Microsoft.Insights/dataCollectionEndpoints/{asked.name}",
            "dataCollectionRuleResourceId": f"{managed}/Microsoft.Insights/dataCollectionRules/{asked.name}",
        },
        "metrics": {"prometheusQueryEndpoint": f"https://{host}", "internalId": f"mac_{guid(asked.id)}"},
        "privateEndpointConnections": [],
        "publicNetworkAccess": asked.inputs.get("publicNetworkAccess", "Enabled"),
    }


def _endpoint(asked: Asked) -> Json:
    location = asked.inputs["location"].replace(" ", "").lower()
    host = f"{asked.name.lower()}-{token_hex(asked.id)[:4]}.{location}-1"
    return {
        "immutableId": f"dce-{guid(asked.id).replace('-', '')}",
        "configurationAccess": {"endpoint": f"https://{host}.handler.control.monitor.azure.com"},
        "logsIngestion": {"endpoint": f"https://{host}.ingest.monitor.azure.com"},
        "metricsIngestion": {"endpoint": f"https://{host}.metrics.ingest.monitor.azure.com"},
        "failoverConfiguration": {},
        "metadata": {},
        "privateLinkScopedResources": [],
    }


def _rule(asked: Asked) -> Json:
    return {"immutableId": f"dcr-{guid(asked.id).replace('-', '')}", "metadata": {}}


def _rule_allowed(asked: Asked) -> None:
    """Streams go from sources that exist to destinations that exist."""
    sources, destinations = asked.inputs.get("dataSources", {}), asked.inputs.get("destinations", {})
    names = {
        one.get("name")
        for many in destinations.values()
        for one in (many if isinstance(many, list) else [many])
    }
    streams = {stream for many in sources.values() for one in many for stream in one.get("streams", ())}
    for flow in asked.inputs.get("dataFlows", ()):
        if unknown := set(flow.get("destinations", ())) - names:
            raise AzureError(
                400, "InvalidPayload", f"Data flow has unknown destinations: {', '.join(sorted(unknown))}."
            )
        if unsourced := set(flow.get("streams", ())) - streams:
            raise AzureError(
                400,
                "InvalidPayload",
                f"Data flow has streams without source: {', '.join(sorted(unsourced))}.",
            )


def _association_allowed(asked: Asked) -> None:
    rule, endpoint = asked.inputs.get("dataCollectionRuleId"), asked.inputs.get("dataCollectionEndpointId")
    if bool(rule) == bool(endpoint):
        raise AzureError(
            400, "InvalidPayload", "Give either dataCollectionRuleId or dataCollectionEndpointId."
        )
    if bool(endpoint) != (asked.name == ENDPOINT_ASSOCIATION):
        raise AzureError(
            400,
            "InvalidAssociationName",
            f"An association with an endpoint, and no other, is named {ENDPOINT_ASSOCIATION}.",
        )


KNOWN: Final = {
    "monitor:AzureMonitorWorkspace": Knowledge(
        id=f"{GROUP}/providers/Microsoft.Monitor/accounts/{{azureMonitorWorkspaceName}}",
        name="azureMonitorWorkspaceName",
        name_pattern=r"[A-Za-z0-9][A-Za-z0-9-]{2,42}[A-Za-z0-9]",
        name_rule="4 to 44 letters, digits and hyphens, no hyphen at either end",
        computed=_workspace,
    ),
    "monitor:DataCollectionEndpoint": Knowledge(
        id=f"{INSIGHTS}/dataCollectionEndpoints/{{dataCollectionEndpointName}}",
        name="dataCollectionEndpointName",
        name_pattern=r"[A-Za-z0-9][A-Za-z0-9-]{1,42}[A-Za-z0-9]",
        name_rule="3 to 44 letters, digits and hyphens, no hyphen at either end",
        computed=_endpoint,
    ),
    "monitor:DataCollectionRule": Knowledge(
        id=f"{INSIGHTS}/dataCollectionRules/{{dataCollectionRuleName}}",
        name="dataCollectionRuleName",
        name_pattern=r"[A-Za-z0-9][\w.-]{1,62}[A-Za-z0-9]",
        name_rule="3 to 64 letters, digits, underscores, periods and hyphens, a letter or digit at both ends",
        computed=_rule,
        allowed=_rule_allowed,
    ),
    "monitor:DataCollectionRuleAssociation": Knowledge(
        id="/{resourceUri}/providers/Microsoft.Insights/dataCollectionRuleAssociations/{associationName}",
        name="associationName",
        name_pattern=r"[A-Za-z0-9][\w.-]{0,62}",
        name_rule="1 to 63 letters, digits, underscores, periods and hyphens",
        computed=lambda asked: {"metadata": {}},
        allowed=_association_allowed,
    ),
}
