# SPDX-License-Identifier: Apache-2.0
"""The groups of keys in a pool: how it scales, how its GPUs are cut, how its nodes are replaced."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from .base import Part, refuse

# https://learn.microsoft.com/azure/aks/use-labels#unavailable-labels, and Karpenter's
RESERVED_DOMAINS: Final = (
    "kubernetes.azure.com",
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "karpenter.azure.com",
)
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_NODES_OR_PERCENT: Final = r"^([1-9]\d{0,2}|[1-9]\d?%|100%)$"


def label_syntax(value: dict[str, str]) -> dict[str, str]:
    """Refuses what Kubernetes would refuse."""
    for key, text in value.items():
        if not _LABEL_KEY.fullmatch(key):
            raise refuse(f"{key!r} is no key of a Kubernetes label")
        if not _LABEL_VALUE.fullmatch(text):
            raise refuse(f"{text!r}, of {key}, is no value of a Kubernetes label")
    return value


def label_texts(value: dict[str, str]) -> dict[str, str]:
    """Refuses what Kubernetes would refuse, and what is AKS's to set."""
    for key in label_syntax(value):
        prefix, _, _ = key.rpartition("/")
        if any(prefix == domain or prefix.endswith(f".{domain}") for domain in RESERVED_DOMAINS):
            raise refuse(
                f"labels of {prefix} are for Kubernetes and AKS to set",
                allowed="a prefix of your own, or none",
            )
    return value


def no_zone_twice(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise refuse("a zone is named twice")
    return value


def _text(value: object) -> object:
    """A number where a text is meant: YAML, and `pulumi config set`, make one of an unquoted 1."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NumberText = Annotated[str, BeforeValidator(_text)]
Zone = Annotated[Literal["1", "2", "3"], BeforeValidator(_text)]


class Autoscale(Part):
    """Nodes come when pods wait for them, and go when none needs them."""

    min: int = Field(default=0, ge=0, le=1000, description="0 to 1000 nodes", examples=[0])
    max: int = Field(ge=1, le=1000, description="1 to 1000 nodes, not fewer than min", examples=[4])

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise refuse(
                "the largest number of nodes is below the smallest",
                under=("max",),
                given=str(self.max),
                allowed=f"{self.min} to 1000 nodes",
                examples=[self.min],
            )
        return self


class Mig(Part):
    """Each GPU cut into instances of one kind: https://learn.microsoft.com/azure/aks/gpu-multi-instance"""

    profile: Literal["1g", "2g", "3g", "4g", "7g"] = Field(
        description="1g, 2g, 3g, 4g or 7g: seven, three, two, one or one instances a GPU", examples=["1g"]
    )
    strategy: Literal["single", "mixed"] = Field(
        default="single",
        description="single (pods ask for nvidia.com/gpu) or mixed (they ask for an instance by its name)",
        examples=["single"],
    )


class Surge(Part):
    """How a pool's nodes are replaced when their image or version changes."""

    max_surge: NumberText | None = Field(
        default=None,
        pattern=_NODES_OR_PERCENT,
        description="nodes added meanwhile, a number or a percentage, in quotes; they count against the quota",
        examples=["1"],
    )
    max_unavailable: NumberText | None = Field(
        default=None,
        pattern=_NODES_OR_PERCENT,
        description="nodes that may be missing meanwhile, in quotes: for sizes of which there are no more",
        examples=["1"],
    )
    drain_timeout_minutes: int | None = Field(
        default=None, ge=1, le=1440, description="1 to 1440 minutes for pods to go", examples=[30]
    )
    soak_minutes: int | None = Field(
        default=None, ge=0, le=30, description="0 to 30 minutes between two nodes", examples=[5]
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.max_surge is not None and self.max_unavailable is not None:
            raise refuse(
                "a pool is upgraded with more nodes or with fewer, not both",
                under=("maxUnavailable",),
                given=self.max_unavailable,
                allowed="maxSurge or maxUnavailable",
                remove=True,
            )
        return self
