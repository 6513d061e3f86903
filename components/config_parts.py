# SPDX-License-Identifier: Apache-2.0
"""The parts of a stack's configuration: what each key may hold, and why.

A field's description is what a refusal calls "allowed", its first example what the refusal proposes. How the
parts go together, and where they are read from, is in `config.py`.
"""

import ipaddress
import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
RESOURCE_GROUP_NAME: Final = r"^[a-zA-Z0-9._()-]{0,89}[a-zA-Z0-9_()-]$"
CLUSTER_NAME: Final = r"^[a-zA-Z0-9]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?$"
# Linux pools: https://learn.microsoft.com/azure/aks/create-node-pools#limitations
POOL_NAME: Final = r"^[a-z][a-z0-9]{0,11}$"
# Microsoft.Dashboard/2024-10-01, WorkspaceNameParameter
GRAFANA_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,28}[a-zA-Z0-9]$"
# https://learn.microsoft.com/azure/managed-grafana/how-to-connect-to-data-source-privately
ENDPOINT_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,18}[a-zA-Z0-9]$"
DOMAIN: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
# https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated: NC, ND, NG and NV sizes
# have GPUs.
GPU_SIZE: Final = re.compile(r"^Standard_N[CDGV]\d", re.IGNORECASE)
FPGA_SIZE: Final = re.compile(r"^Standard_NP\d", re.IGNORECASE)
DIGEST: Final = re.compile(r"^[^\s@]+@sha256:[0-9a-f]{64}$")

# What AKS uses for services and pods when a cluster with overlay networking does not say otherwise.
SERVICE_RANGE: Final = ipaddress.ip_network("10.0.0.0/16")
POD_RANGE: Final = ipaddress.ip_network("10.244.0.0/16")


def refuse(reason: str, **context: Any) -> PydanticCustomError:
    """An error whose context reaches the user: `allowed`, `examples`, `at` (another path), `given`, `fix`."""
    return PydanticCustomError("refused", reason.replace("{", "(").replace("}", ")"), context)


def _cidr(value: str) -> str:
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise refuse(f"this is no IPv4 range: {error}") from None
    if not network.is_private:
        raise refuse(
            "the range is not private", allowed="a range inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        )
    return value


def _gpu_size(value: str) -> str:
    if FPGA_SIZE.match(value):
        raise refuse("sizes of the NP series have FPGAs, not GPUs")
    if not GPU_SIZE.match(value):
        raise refuse("this VM size has no GPU")
    return value


def _digest(value: str) -> str:
    if not DIGEST.match(value):
        raise refuse("the image is not named by its digest, so two deployments could run different code")
    return value


Cidr = Annotated[str, AfterValidator(_cidr)]


class Part(BaseModel):
    """A group of keys, in YAML written in camelCase. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class ExistingResource(Part):
    """Something that is there already and stays when the stack is destroyed."""

    name: str = Field(min_length=1, description="the name of the existing resource", examples=["shared"])
    resource_group: str = Field(
        pattern=RESOURCE_GROUP_NAME, description="the resource group in which it is", examples=["shared-rg"]
    )


class SystemPool(Part):
    """The untainted pool for everything that needs no GPU."""

    vm_size: str = Field(
        default="Standard_D4s_v5",
        pattern=r"^Standard_",
        description="a VM size of the region",
        examples=["Standard_D4s_v5"],
    )
    count: int = Field(default=2, ge=1, le=100, description="1 to 100 nodes", examples=[2])


class NewCluster(Part):
    name: str = Field(
        pattern=CLUSTER_NAME,
        description="1 to 63 letters, digits, hyphens and underscores; a letter or digit first and last",
        examples=["gpuheap-prod"],
    )
    kubernetes_version: str | None = Field(
        default=None,
        pattern=r"^1\.\d{2}(\.\d+)?$",
        description="a version that AKS offers, in quotes, or none for its default",
        examples=["1.34"],
    )
    system_pool: SystemPool = SystemPool()


class ExistingCluster(Part):
    existing: ExistingResource = Field(description="the AKS cluster to use")


class GpuPool(Part):
    name: str = Field(
        default="gpu",
        pattern=POOL_NAME,
        description="1 to 12 lower-case letters and digits, a letter first",
        examples=["gpu"],
    )
    vm_size: Annotated[str, AfterValidator(_gpu_size)] = Field(
        description="a size of the NC, ND, NG or NV series",
        examples=["Standard_NC24ads_A100_v4"],
    )
    count: int = Field(default=1, ge=0, le=100, description="0 to 100 nodes", examples=[1])


class Network(Part):
    """Our own virtual network, for a new cluster. The second subnet is for the Private Link Service's
    addresses alone.
    """

    address_space: Cidr = Field(
        default="10.40.0.0/16", description="a private IPv4 range, /8 to /24", examples=["10.40.0.0/16"]
    )
    node_subnet: Cidr = Field(
        default="10.40.0.0/20", description="a range inside addressSpace", examples=["10.40.0.0/20"]
    )
    private_link_subnet: Cidr = Field(
        default="10.40.16.0/24",
        description="a range inside addressSpace, beside nodeSubnet",
        examples=["10.40.16.0/24"],
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        space, nodes, link = (
            ipaddress.ip_network(value)
            for value in (self.address_space, self.node_subnet, self.private_link_subnet)
        )
        for key, subnet in (("nodeSubnet", nodes), ("privateLinkSubnet", link)):
            if not subnet.subnet_of(space):  # type: ignore[arg-type]
                raise refuse(
                    "the subnet is not inside the address space",
                    at=("network", key),
                    given=str(subnet),
                    allowed=f"a range inside {space}",
                    examples=[str(next(space.subnets(prefixlen_diff=max(0, 24 - space.prefixlen))))],
                )
        if nodes.overlaps(link):
            raise refuse(
                "the two subnets overlap",
                at=("network", "privateLinkSubnet"),
                given=str(link),
                allowed=f"a range outside {nodes}",
                examples=["10.40.16.0/24"],
            )
        for taken, what in ((SERVICE_RANGE, "services"), (POD_RANGE, "pods")):
            if space.overlaps(taken):
                raise refuse(
                    f"the address space overlaps {taken}, which the cluster uses for {what}",
                    at=("network", "addressSpace"),
                    given=str(space),
                    allowed=f"a private range outside {SERVICE_RANGE} and {POD_RANGE}",
                    examples=["10.40.0.0/16"],
                )
        return self


class Pyroscope(Part):
    chart: str = Field(
        default="oci://ghcr.io/grafana/helm-charts/pyroscope",
        pattern=r"^(oci://|https://|\./|/)\S+$",
        description="a chart's address (oci:// or https://) or a folder (./…)",
        examples=["oci://ghcr.io/grafana/helm-charts/pyroscope"],
    )
    version: str = Field(
        default="1.15.0",
        pattern=r"^\d+\.\d+\.\d+\S*$",
        description="the chart's exact version",
        examples=["1.15.0"],
    )
    disk_gib: int = Field(
        default=32,
        ge=0,
        le=32767,
        description="0 (profiles live as long as the pod) to 32767 GiB",
        examples=[32],
    )


class PrivateLink(Part):
    endpoint_name: str = Field(
        pattern=ENDPOINT_NAME,
        description="the private endpoint's name: 2 to 20 letters, digits and hyphens, a letter first",
        examples=["gpuheap-prod"],
    )
    domain: str = Field(
        pattern=DOMAIN,
        max_length=253,
        description="a lower-case domain name by which Grafana reaches Pyroscope; it needs no public DNS",
        examples=["pyroscope.gpuheap.internal"],
    )
    subnet: str | None = Field(
        default=None,
        min_length=1,
        description="only for an existing cluster: a subnet of its network, for the Private Link Service",
        examples=["private-link"],
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


class NewGrafana(Part):
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
    existing: ExistingResource = Field(
        description="the Managed Grafana workspace to use; it must be of the Standard tier"
    )
    administrator: Administrator | None = Field(default=None, description="default: whoever runs `pulumi up`")


class AgentImage(Part):
    """An image that exists."""

    image: Annotated[str, AfterValidator(_digest)] = Field(
        description="<registry>/<name>@sha256:<64 hexadecimal digits>",
        examples=["ghcr.io/example/gpuheap-agent@sha256:" + "0" * 64],
    )


class Build(Part):
    registry: str = Field(
        pattern=r"^[a-z0-9.-]+(:\d+)?(/[a-z0-9._/-]+)?$",
        description="the registry, with a path if it needs one, to which the image is pushed",
        examples=["example.azurecr.io"],
    )
    registry_id: str | None = Field(
        default=None,
        pattern=r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.ContainerRegistry/registries/[^/]+$",
        description="the resource id of an Azure Container Registry from which the cluster shall be allowed to pull",
        examples=["/subscriptions/…/providers/Microsoft.ContainerRegistry/registries/example"],
    )


class AgentBuild(Part):
    """An image built from `agent/Dockerfile`, tagged with the hash of its sources."""

    build: Build = Field(description="where the built image goes")
