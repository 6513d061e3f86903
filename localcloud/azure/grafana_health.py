# SPDX-License-Identifier: Apache-2.0
"""Could a workspace reach a data source, as things are in simulated Azure? What Grafana's health check would find."""

from typing import Final
from urllib.parse import urlsplit

from localcloud.azure.knowledge import Finder
from localcloud.azure.records import Json, Resource
from localcloud.azure.types_basic import ROLE_ASSIGNMENT
from localcloud.azure.types_grafana import ENDPOINT

MONITORING_DATA_READER: Final = "b0d8363b-8ddd-447d-831f-62ca05bff136"
MONITOR_WORKSPACE: Final = "azure-native:monitor:AzureMonitorWorkspace"


def data_source_health(source: Json, workspace: Resource, store: Finder) -> str | None:
    """What is wrong with a data source; None when nothing is."""
    url = str(source.get("url", ""))
    host = urlsplit(url).hostname
    if not host:
        return f"the URL {url!r} names no host"
    for monitor in store.resources(token=MONITOR_WORKSPACE):
        if urlsplit(monitor.outputs["metrics"]["prometheusQueryEndpoint"]).hostname == host:
            return _query_rights(source, workspace, monitor, store)
    for endpoint in store.resources(token=ENDPOINT, under=workspace.id):
        if host in (
            endpoint.outputs.get("privateLinkServiceUrl"),
            endpoint.outputs.get("privateLinkServicePrivateIP"),
        ):
            status = endpoint.outputs["connectionState"]["status"]
            return None if status == "Approved" else f"{endpoint.name} is {status}: {host} cannot be reached"
    return f"dial tcp: lookup {host}: no such host (no managed private endpoint has that name)"


def _query_rights(source: Json, workspace: Resource, monitor: Resource, store: Finder) -> str | None:
    credentials = source.get("jsonData", {}).get("azureCredentials", {})
    if credentials.get("authType") != "msi":
        return "401: the data source does not authenticate with the managed identity"
    principal = workspace.outputs.get("identity", {}).get("principalId")
    for assignment in store.resources(token=ROLE_ASSIGNMENT):
        role = str(assignment.outputs.get("roleDefinitionId", "")).rpartition("/")[2].lower()
        scope = str(assignment.outputs.get("scope", "")).rstrip("/").lower()
        in_scope = f"{monitor.id}/".lower().startswith(f"{scope}/")
        if role == MONITORING_DATA_READER and in_scope and assignment.outputs.get("principalId") == principal:
            return None
    return f"403: the identity of {workspace.name} has no role Monitoring Data Reader on {monitor.name}"
