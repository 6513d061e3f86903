# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, new or existing, and who may write to it."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from .base import ExistingResource, Part, refuse
from .cluster import ExistingCluster, NewCluster
from .network import NETWORK_ID, SUBNET_ID, GivenSubnets, Network

# Microsoft.Dashboard/2024-10-01, WorkspaceNameParameter
GRAFANA_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,28}[a-zA-Z0-9]$"

LEVELS: Final = {"none": 0, "view": 1, "edit": 2, "admin": 4}
PUBLISHED: Final = (
    "https://raw.githubusercontent.com/inspektor-gadget/grafana-dashboards/<commit>"
    "/dashboards/gpu-observability/AdvancedGPUObservability.json"
)


ZONE: Final = "privatelink.grafana.azure.com"
"""https://learn.microsoft.com/azure/private-link/private-endpoint-dns"""
_ZONE_CHOICE: Final = (
    r"(?i)^(new|none|/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/privateDnsZones/"
    r"privatelink\.grafana\.azure\.com)$"
)


class PrivateAccess(Part):
    """A private endpoint of the workspace, and the name by which machines in private networks find it.

    Whoever runs `pulumi up` must be on one of these machines, too: the data sources and dashboards are set through
    Grafana itself.
    """

    subnet_id: str | None = Field(
        default=None,
        pattern=SUBNET_ID,
        description="the id of a subnet for the endpoint; default: one in the stack's own network",
        examples=["/subscriptions/…/virtualNetworks/shared/subnets/private-endpoints"],
    )
    location: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+$",
        description="the region of that subnet; default: the cluster's",
        examples=["westeurope"],
    )
    dns_zone: str = Field(
        default="new",
        pattern=_ZONE_CHOICE,
        description=f"new (a zone {ZONE}, linked to the endpoint's network), none (others see to the name), or the id "
        "of such a zone that is there",
        examples=["new"],
    )
    networks: list[Annotated[str, Field(pattern=NETWORK_ID)]] = Field(
        default=[],
        max_length=100,
        description="with a new zone: ids of further networks that find the workspace by it, such as that of your "
        "build machines",
        examples=["/subscriptions/…/virtualNetworks/hub"],
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
        description="false for a workspace that answers by its private endpoint alone, with privateAccess",
        examples=[True],
    )
    private_access: PrivateAccess | None = Field(
        default=None, description="a private endpoint of the workspace", examples=[{"dnsZone": "new"}]
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
    private_access: PrivateAccess | None = Field(
        default=None, description="a private endpoint of the workspace", examples=[{"dnsZone": "new"}]
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")
    folder: Folder = Field(default=Folder(), description="the folder of our dashboards")
    published_dashboard: PublishedDashboard | None = Field(
        default=None, description="a dashboard that others publish, by its address and checksum"
    )


def problems(
    grafana: NewGrafana | ExistingGrafana,
    cluster: NewCluster | ExistingCluster,
    network: Network | GivenSubnets | None,
) -> Iterator[PydanticCustomError]:
    """What each of these says that another one rules out."""
    access = grafana.private_access
    if access is None:
        if isinstance(grafana, NewGrafana) and not grafana.public_access:
            yield refuse(
                "without public access and without a private endpoint, nobody reaches the workspace",
                at=("grafana", "privateAccess", "dnsZone"),
                given="publicAccess: false, and no privateAccess",
                allowed="privateAccess, if only with one of its keys",
                examples=["new"],
            )
        return
    own_network = isinstance(cluster, NewCluster) and not isinstance(network, GivenSubnets)
    if access.subnet_id is None and not own_network:
        yield refuse(
            "the stack has no network of its own for the endpoint",
            at=("grafana", "privateAccess", "subnetId"),
            given="no subnet",
            allowed="the id of a subnet",
            examples=["/subscriptions/…/virtualNetworks/shared/subnets/private-endpoints"],
        )
    if access.location is not None and access.subnet_id is None:
        yield refuse(
            "an endpoint in the stack's own network is in that network's region",
            at=("grafana", "privateAccess", "location"),
            given=access.location,
            allowed="location with subnetId",
            remove=True,
        )
    if access.networks and access.dns_zone != "new":
        yield refuse(
            "which networks a zone is linked to is its owner's to say",
            at=("grafana", "privateAccess", "networks"),
            given=f"networks with dnsZone {access.dns_zone}",
            allowed="networks with dnsZone new",
            remove=True,
        )
