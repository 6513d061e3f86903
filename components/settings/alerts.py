# SPDX-License-Identifier: Apache-2.0
"""Whom alerts tell, and from where on."""

from typing import Annotated

from pydantic import Field

from alerts.rules import RUNBOOK

from .base import Part

Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
ActionGroupId = Annotated[
    str,
    Field(
        pattern=r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Insights/actionGroups/[^/]+$"
    ),
]


class Alerts(Part):
    """Alerts are there without any of these keys: then they are seen in the portal, and tell nobody."""

    emails: list[Email] = Field(
        default=[],
        max_length=1000,
        description="addresses that are told",
        examples=["gpu-oncall@example.com"],
    )
    action_groups: list[ActionGroupId] = Field(
        default=[],
        max_length=5,
        description="resource ids of action groups that are there",
        examples=["/subscriptions/…/providers/Microsoft.Insights/actionGroups/oncall"],
    )
    near_capacity_percent: int = Field(
        default=90, ge=1, le=100, description="1 to 100 percent of a GPU's memory", examples=[90]
    )
    gpu_memory_gib: float | None = Field(
        default=None,
        gt=0,
        le=1024,
        description="GiB of one GPU or MIG slice; default: what is known of the pool's VM size",
        examples=[80],
    )
    growth_mib: int = Field(
        default=256, ge=1, description="MiB in two hours, below which growth is none", examples=[256]
    )
    runbook: str = Field(
        default=RUNBOOK,
        pattern=r"^\S+[^\s#]$",
        description="the address at which your people find docs/runbook.md",
        examples=["https://wiki.example.com/gpuheap/runbook"],
    )
