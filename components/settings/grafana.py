# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, new or existing, and who may write to it."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from .base import ExistingResource, Part

# Microsoft.Dashboard/2024-10-01, WorkspaceNameParameter
GRAFANA_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,28}[a-zA-Z0-9]$"

LEVELS: Final = {"none": 0, "view": 1, "edit": 2, "admin": 4}
PUBLISHED: Final = (
    "https://raw.githubusercontent.com/inspektor-gadget/grafana-dashboards/<commit>"
    "/dashboards/gpu-observability/AdvancedGPUObservability.json"
)


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


class Folder(Part):
    """The folder of our dashboards, and who may do what in it."""

    title: str = Field(
        default="GPU profiling",
        min_length=1,
        max_length=189,
        description="1 to 189 characters",
        examples=["GPU profiling"],
    )
    viewers: Literal["view", "edit", "none"] = Field(
        default="view", description="view, edit or none", examples=["view"]
    )
    editors: Literal["view", "edit", "admin", "none"] = Field(
        default="edit", description="view, edit, admin or none", examples=["edit"]
    )

    @property
    def permissions(self) -> Mapping[str, int]:
        """Grafana's levels, by role."""
        wanted = {"Viewer": LEVELS[self.viewers], "Editor": LEVELS[self.editors]}
        return {role: level for role, level in wanted.items() if level}


class PublishedDashboard(Part):
    """A dashboard of others, such as AdvancedGPUObservability, of which nothing is in this repository."""

    url: str = Field(
        pattern=r"^https://\S+$",
        description="an https address, best of one commit",
        examples=[PUBLISHED],
    )
    sha256: str = Field(
        pattern=r"^[0-9a-fA-F]{64}$",
        description="the checksum of what is there: 64 hexadecimal digits",
        examples=["0" * 64],
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
    public_access: bool = Field(
        default=True,
        description="false for a workspace that answers from private networks alone; `pulumi up` must run in one",
        examples=[True],
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")
    folder: Folder = Field(default=Folder(), description="the folder of our dashboards")
    published_dashboard: PublishedDashboard | None = Field(
        default=None, description="a dashboard that others publish, by its address and checksum"
    )


class ExistingGrafana(Part):
    """A workspace that is there."""

    existing: ExistingResource = Field(
        description="the Managed Grafana workspace to use; it must be of the Standard tier"
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")
    folder: Folder = Field(default=Folder(), description="the folder of our dashboards")
    published_dashboard: PublishedDashboard | None = Field(
        default=None, description="a dashboard that others publish, by its address and checksum"
    )
