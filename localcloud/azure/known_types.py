# SPDX-License-Identifier: Apache-2.0
"""Every type of resource that the local cloud can make."""

from collections.abc import Mapping
from typing import Final

from localcloud.azure import (
    aks_automatic,
    types_alerts,
    types_basic,
    types_cluster,
    types_grafana,
    types_monitor,
    types_network,
    types_private_endpoints,
    types_storage,
)
from localcloud.azure.knowledge import Knowledge

KNOWN: Final[Mapping[str, Knowledge]] = {
    **types_alerts.KNOWN,
    **types_basic.KNOWN,
    **types_network.KNOWN,
    **types_cluster.KNOWN,
    **aks_automatic.KNOWN,
    **types_monitor.KNOWN,
    **types_grafana.KNOWN,
    **types_private_endpoints.KNOWN,
    **types_storage.KNOWN,
}
"""By token without package: `network:Subnet`."""


def knowledge_of(token: str) -> Knowledge | None:
    """What is known of a type token (without API version); None for a type that is not simulated."""
    return KNOWN.get(token.partition(":")[2])
