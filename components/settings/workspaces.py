# SPDX-License-Identifier: Apache-2.0
"""Namespaces for classes of GPU workloads: their share of the GPUs, their defaults, what may cross their borders."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .base import Part, refuse
from .placement import NAMESPACE_NAME
from .quantities import check_memory

QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
RESOURCE: Final = re.compile(r"^(nvidia|amd)\.com/[a-z0-9][a-z0-9._-]{0,62}$")
DEFAULT_GPUS: Final = 4
TAKEN: Final = frozenset(
    {
        "default",
        "aks-command",
        "app-routing-system",
        "gatekeeper-system",
        "gadget",
        "gpuheap",
        "pyroscope",
        "gpu-device-plugins",
        "gpu-readiness",
    }
)
"""Namespaces that are AKS's or the stack's own. Those that begin with `kube-` are Kubernetes'."""


def _range(value: str) -> str:
    try:
        ipaddress.IPv4Network(value)
    except ValueError as error:
        raise refuse(f"this is no IPv4 range: {error}") from None
    return value


def _resources(value: dict[str, int]) -> dict[str, int]:
    for name, count in value.items():
        if not RESOURCE.fullmatch(name):
            raise refuse("this is no name of a GPU resource", given=name)
        if not 0 <= count <= 100_000:
            raise refuse("this is no number of GPUs", given=f"{name}: {count}")
    return value


class Egress(Part):
    """One way out of the namespace."""

    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$",
        description="1 to 42 lower-case letters, digits and hyphens",
        examples=["model-downloads"],
    )
    ranges: list[Annotated[str, AfterValidator(_range)]] = Field(
        default=[],
        description="IPv4 ranges; private addresses in a wider range stay closed unless they are named",
        examples=[["0.0.0.0/0"]],
    )
    namespaces: list[Annotated[str, Field(pattern=NAMESPACE_NAME)]] = Field(
        default=[], description="names of namespaces of this cluster", examples=[["feature-store"]]
    )
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=[], description="TCP ports 1 to 65535; none: all", examples=[[443]]
    )

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if not self.ranges and not self.namespaces:
            raise refuse(
                "a way out without a destination would be open to all",
                allowed="ranges, or namespaces, or both",
            )
        return self


class ContainerDefaults(Part):
    """What a container gets that says nothing."""

    cpu_request: str = Field(
        default="500m", pattern=QUANTITY, description="a quantity of processors", examples=["500m"]
    )
    memory_request: str = Field(
        default="2Gi", pattern=QUANTITY, description="a quantity of bytes", examples=["2Gi"]
    )
    memory_limit: str = Field(
        default="16Gi", pattern=QUANTITY, description="a quantity of bytes", examples=["16Gi"]
    )

    @model_validator(mode="after")
    def _request_within_limit(self) -> Self:
        check_memory(self.memory_request, self.memory_limit)
        return self


class Workspace(Part):
    name: str = Field(
        pattern=NAMESPACE_NAME,
        description="a name for the namespace: 1 to 63 lower-case letters, digits and hyphens",
        examples=["gpu-training"],
    )
    gpus: Annotated[dict[str, int], AfterValidator(_resources)] | None = Field(
        default=None,
        description="how many of each resource at most, by name; what the pools offer and is not named: none; "
        "default: 4 of each that the pools offer",
        examples=[{"nvidia.com/gpu": 8}],
    )
    pod_security: Literal["privileged", "baseline", "restricted"] = Field(
        default="baseline", description="privileged, baseline or restricted", examples=["restricted"]
    )
    container_defaults: ContainerDefaults = ContainerDefaults()
    same_namespace: bool = Field(
        default=True, description="whether its pods reach each other", examples=[True]
    )
    egress: list[Egress] = Field(default=[], description="ways out, beside DNS", max_length=50)
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="the TCP port on which Azure Monitor may scrape its pods",
        examples=[8000],
    )
    priority: int | None = Field(
        default=None,
        ge=-1_000_000_000,
        le=1_000_000_000,
        description="the value of a PriorityClass of the namespace's name; default: none",
        examples=[1000],
    )
    labels: dict[str, str] = Field(
        default={}, max_length=20, description="labels of the namespace", examples=[{"team": "research"}]
    )


MODEL_DOWNLOADS: Final = Egress(name="model-downloads", ranges=["0.0.0.0/0"], ports=[443])
DEFAULT_WORKSPACES: Final = (
    Workspace(name="gpu-training", egress=[MODEL_DOWNLOADS]),
    Workspace(name="gpu-inference", egress=[MODEL_DOWNLOADS]),
)


def problems(workspaces: Sequence[Workspace] | None) -> Iterator[PydanticCustomError]:
    seen: set[str] = set()
    for place, name in enumerate(workspace.name for workspace in workspaces or ()):
        reason = None
        if name in TAKEN or name.startswith("kube-"):
            reason = "this namespace is not a workspace's: its pods would be cut off from all others"
        elif name in seen:
            reason = "another workspace has this name"
        seen.add(name)
        if reason:
            yield refuse(
                reason,
                at=("workspaces", place, "name"),
                given=name,
                allowed="a name that no other namespace has",
                examples=[f"gpu-{name}"],
            )
