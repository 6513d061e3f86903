# SPDX-License-Identifier: Apache-2.0
"""Who talks to Azure, and where Azure is. Nothing here is ever written to a stack's state."""

import os
from typing import Final

from azure.core.credentials import TokenCredential

PUBLIC_ARM_ENDPOINT: Final = "https://management.azure.com"
GRAFANA_SCOPE: Final = "ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default"
"""The application "Azure Managed Grafana": https://learn.microsoft.com/azure/managed-grafana/how-to-api-calls
"""


def credential() -> TokenCredential:
    """Whatever the environment offers: variables, workload identity, managed identity, `az login`."""
    from azure.identity import DefaultAzureCredential  # loaded by who uses it: it takes most of a second

    return DefaultAzureCredential(exclude_interactive_browser_credential=True)


def arm_endpoint() -> str:
    """Public Azure, unless GPUHEAP_ARM_ENDPOINT names another Resource Manager: a local cloud's."""
    return os.environ.get("GPUHEAP_ARM_ENDPOINT") or PUBLIC_ARM_ENDPOINT


def arm_scope() -> str:
    """What a token for Resource Manager is asked for. A local cloud takes the tokens of public Azure."""
    return f"{PUBLIC_ARM_ENDPOINT}/.default"
