# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, new or existing, and who may write to it."""

from typing import Final

from pydantic import Field

from .base import ExistingResource, Part

# Microsoft.Dashboard/2024-10-01, WorkspaceNameParameter
GRAFANA_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,28}[a-zA-Z0-9]$"


class Administrator(Part):
    """Who may write data sources and dashboards: the identity that runs `pulumi up`."""

    object_id: str = Field(
        pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        description="the object id (a GUID) of the identity that deploys",
        examples=["00000000-0000-0000-0000-000000000000"],
    )
    principal_type: str = Field(
        pattern="^(User|Group|ServicePrincipal)$",
        description="User, Group or ServicePrincipal",
        examples=["Group"],
    )


class NewGrafana(Part):
    """A workspace that comes and goes with the stack."""

    name: str = Field(
        pattern=GRAFANA_NAME,
        description="2 to 30 letters, digits and hyphens, a letter first, no hyphen last",
        examples=["gpuheap-prod"],
    )
    major_version: str = Field(
        default="11", pattern=r"^\d{2}$", description="a major version that Azure offers", examples=["11"]
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")


class ExistingGrafana(Part):
    """A workspace that is there."""

    existing: ExistingResource = Field(
        description="the Managed Grafana workspace to use; it must be of the Standard tier"
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")
