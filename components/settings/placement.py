# SPDX-License-Identifier: Apache-2.0
"""Which pods may go to GPU nodes: what happens to others, and whom the rules spare."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from components.placement_rules import PATH

from .base import Part, refuse

NAMESPACE_NAME: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
TAINT: Final = re.compile(
    r"^(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(=(?P<value>[A-Za-z0-9._-]*))?"
    r":(?P<effect>NoSchedule|NoExecute)$"
)


def _taint(value: str) -> str:
    if not TAINT.fullmatch(value):
        raise refuse("this is no taint that keeps pods away")
    return value


def _namespaces(values: list[str]) -> list[str]:
    for value in values:
        if not re.fullmatch(NAMESPACE_NAME, value):
            raise refuse("this is no name of a namespace", given=value)
    return values


def _paths(values: list[str]) -> list[str]:
    for value in values:
        if not PATH.fullmatch(value):
            raise refuse("this is no path of a pod spec", given=value)
    return values


TaintText = Annotated[str, AfterValidator(_taint)]


class Taints(Part):
    """The taints that nodes of GPU pools made elsewhere have; our own pools have the defaults."""

    nvidia: TaintText = Field(
        default="nvidia.com/gpu=present:NoSchedule",
        description="<key>=<value>:NoSchedule or :NoExecute",
        examples=["sku=gpu:NoSchedule"],
    )
    amd: TaintText = Field(
        default="amd.com/gpu=present:NoSchedule",
        description="<key>=<value>:NoSchedule or :NoExecute",
        examples=["sku=gpu:NoSchedule"],
    )


class CustomOwner(Part):
    """A type of an operator whose objects become pods."""

    group: str = Field(
        pattern=r"^[a-z0-9.-]+\.[a-z]+$", description="the API group", examples=["kubeflow.org"]
    )
    version: str = Field(
        pattern=r"^v[0-9]+((alpha|beta)[0-9]+)?$", description="the version", examples=["v1"]
    )
    resource: str = Field(
        pattern=r"^[a-z][a-z0-9]*$",
        description="the plural, as `kubectl api-resources` shows it",
        examples=["pytorchjobs"],
    )
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$", description="the kind", examples=["PyTorchJob"])
    pod_specs: Annotated[list[str], AfterValidator(_paths)] = Field(
        min_length=1,
        description="where the pod specs are: names joined by dots, with [] after the name of a list or {} after that "
        "of a map, once at most",
        examples=[["spec.pytorchReplicaSpecs{}.template.spec"]],
    )


class Placement(Part):
    action: Literal["Deny", "Warn", "Audit"] | None = Field(
        default=None,
        description="Deny, Warn or Audit; default: Deny on a new cluster, Warn on an existing one",
        examples=["Deny"],
    )
    exempt_namespaces: Annotated[list[str], AfterValidator(_namespaces)] = Field(
        default=[],
        max_length=100,
        description="names of namespaces to which the rules do not apply, beside Kubernetes', AKS' and the profilers'",
        examples=[["platform"]],
    )
    taints: Taints = Taints()
    custom_owners: list[CustomOwner] = Field(
        default=[],
        max_length=20,
        description="types of operators that make pods, so that their users see a refusal",
    )
