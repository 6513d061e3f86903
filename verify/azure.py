# SPDX-License-Identifier: Apache-2.0
"""Checks of Azure's own resources: the extension, the private way, the alert rules."""

from typing import Any, Final

from .model import CheckFailed, Live, NothingToCheck

# The versions whose answers the checks were written against.
EXTENSION_API: Final = "2023-05-01"
NETWORK_API: Final = "2024-05-01"
GRAFANA_API: Final = "2024-10-01"
RULE_GROUP_API: Final = "2023-03-01"


def extension(live: Live) -> str:
    if not live.has_profiler("inspektor-gadget"):
        raise NothingToCheck("the stack is without the extension")
    found = live.arm.get(live.output("inspektorGadgetExtensionId"), EXTENSION_API)
    state = _property(found, "provisioningState")
    if state != "Succeeded":
        told = "; ".join(str(status.get("message", "")) for status in _property(found, "statuses") or ())
        raise CheckFailed(f"provisioningState is {state}{': ' if told else ''}{told[:300]}")
    settings = _property(found, "configurationSettings") or {}
    if settings.get("gpuObservability.enabled") != "true":
        raise CheckFailed("gpuObservability.enabled is not true")
    return "Succeeded, gpuObservability enabled"


def private_link_service(live: Live) -> str:
    service = live.arm.get(live.output("privateLinkServiceId"), NETWORK_API)
    state = _property(service, "provisioningState")
    if state != "Succeeded":
        raise CheckFailed(f"{service['name']}: provisioningState is {state}")
    return f"{service['name']}: {state}"


def private_endpoint(live: Live) -> str:
    endpoint = live.arm.get(live.output("managedPrivateEndpointId"), GRAFANA_API)
    status = (_property(endpoint, "connectionState") or {}).get("status")
    if status != "Approved":
        raise CheckFailed(f"the connection is {status}")
    return f"Approved, private address {_property(endpoint, 'privateLinkServicePrivateIP')}"


def private_access(live: Live) -> str:
    """The other way round: the endpoint by which people and `pulumi up` reach a private workspace."""
    if "grafanaPrivateEndpointId" not in live.outputs:
        raise NothingToCheck("the stack has no private endpoint to Grafana")
    endpoint = live.arm.get(live.output("grafanaPrivateEndpointId"), NETWORK_API)
    connections = _property(endpoint, "privateLinkServiceConnections") or []
    states = [
        (_property(each, "privateLinkServiceConnectionState") or {}).get("status") for each in connections
    ]
    if states != ["Approved"]:
        raise CheckFailed(f"its connections are: {', '.join(map(str, states)) or 'none'}")
    return f"{endpoint['name']}: Approved"


def alert_rules(live: Live) -> str:
    if "alertRuleGroupId" not in live.outputs:
        raise NothingToCheck("the stack is without alerts")
    group = live.arm.get(live.output("alertRuleGroupId"), RULE_GROUP_API)
    rules = _property(group, "rules") or []
    if _property(group, "enabled") is False:
        raise CheckFailed(f"rule group {group['name']} is disabled")
    off = [rule.get("alert") for rule in rules if rule.get("enabled") is False]
    if off:
        raise CheckFailed(f"disabled: {', '.join(off)}")
    return f"{len(rules)} rules enabled"


def _property(resource: dict[str, Any], name: str) -> Any:
    return (resource.get("properties") or {}).get(name)
