# SPDX-License-Identifier: Apache-2.0
"""Alerts about what happens to Azure's own resources, which no metric tells: from the activity log. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from alerts.rules import RUNBOOK


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAlert:
    """Fires for any of `operations` that ends in `status`, on a resource in the scopes that are watched."""

    name: str
    operations: Sequence[str]
    status: Literal["Succeeded", "Failed"]
    summary: str

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.name.lower()}"


# Names of operations: https://learn.microsoft.com/azure/role-based-access-control/permissions/networking
ACTIVITY_ALERTS: Final = (
    ActivityAlert(
        name="PrivateEndpointChanged",
        operations=(
            "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
            "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
            "Microsoft.Network/privateLinkServices/delete",
            "Microsoft.Dashboard/grafana/managedPrivateEndpoints/delete",
        ),
        status="Succeeded",
        summary="The private way from Grafana to Pyroscope was approved, rejected or removed.",
    ),
    ActivityAlert(
        name="ExtensionFailed",
        operations=("Microsoft.KubernetesConfiguration/extensions/write",),
        status="Failed",
        summary="The extension microsoft.inspektorgadget could not be installed or changed.",
    ),
)
