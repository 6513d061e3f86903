# SPDX-License-Identifier: Apache-2.0
"""When AKS may upgrade the cluster, and when the images of its nodes."""

import re
from datetime import date
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from .base import Part, refuse

# https://learn.microsoft.com/azure/aks/planned-maintenance
SHORTEST_HOURS: Final = 4
_GO_MOMENT: Final = re.compile(r" 00:00:00 \+0000 UTC$")


class Window(Part):
    """Some hours of a day of the week."""

    day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] = Field(
        description="a day of the week, in English", examples=["Sunday"]
    )
    start: str = Field(
        pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="the hour and minute, in quotes", examples=["02:00"]
    )
    utc_offset: str = Field(
        default="+00:00",
        pattern=r"^[+-](0\d|1[0-4]):[0-5]\d$",
        description="the time zone in which start counts, in quotes",
        examples=["+01:00"],
    )
    hours: int = Field(
        default=SHORTEST_HOURS, ge=SHORTEST_HOURS, le=24, description="4 to 24 hours", examples=[6]
    )
    every_weeks: int = Field(default=1, ge=1, le=4, description="every 1 to 4 weeks", examples=[1])


def _day(value: object) -> object:
    """The engine reads an unquoted date of YAML as a moment, and passes that on as Go writes one."""
    return _GO_MOMENT.sub("", value) if isinstance(value, str) else value


Day = Annotated[date, BeforeValidator(_day)]


class Days(Part):
    """From one day to another, both of them included."""

    start: Day = Field(description="the first day, as YYYY-MM-DD", examples=["2026-12-20"])
    end: Day = Field(description="the last day, as YYYY-MM-DD, not before start", examples=["2027-01-03"])

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end < self.start:
            raise refuse(
                "the last day is before the first",
                under=("end",),
                given=self.end.isoformat(),
                allowed=f"{self.start} or later",
                examples=[self.start.isoformat()],
            )
        return self


class Maintenance(Part):
    """Windows outside of which AKS upgrades nothing by itself."""

    cluster: Window | None = Field(
        default=None,
        description="when the Kubernetes version may change; default: whenever AKS wants",
        examples=[{"day": "Saturday"}],
    )
    node_images: Window | None = Field(
        default=None,
        description="when nodes may get a new image; default: whenever AKS wants",
        examples=[{"day": "Sunday"}],
    )
    not_on: list[Days] = Field(
        default=[],
        description="days on which neither may happen",
        examples=[[{"start": "2026-12-20"}]],
    )
