# SPDX-License-Identifier: Apache-2.0
"""The agent's image: one that exists, or one to build."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from .base import Part, refuse

DIGEST: Final = re.compile(r"^[^\s@]+@sha256:[0-9a-f]{64}$")


def _digest(value: str) -> str:
    if not DIGEST.match(value):
        raise refuse("the image is not named by its digest, so two deployments could run different code")
    return value


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
