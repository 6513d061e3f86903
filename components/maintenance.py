# SPDX-License-Identifier: Apache-2.0
"""The hours in which AKS may upgrade a cluster by itself, and renew the images of its nodes.

https://learn.microsoft.com/azure/aks/planned-maintenance
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
from pulumi_azure_native import containerservice

from .settings.maintenance import Days, Maintenance, Window

CLUSTER_SCHEDULE: Final = "aksManagedAutoUpgradeSchedule"
NODE_IMAGE_SCHEDULE: Final = "aksManagedNodeOSUpgradeSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindowsArgs:
    cluster_name: str
    resource_group_name: pulumi.Input[str]
    maintenance: Maintenance
    depends_on: Sequence[pulumi.Resource]


class MaintenanceWindows(pulumi.ComponentResource):
    """Up to two schedules of one cluster. Without one, AKS chooses the time."""

    def __init__(
        self, name: str, args: MaintenanceWindowsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:MaintenanceWindows", name, {}, opts)
        for suffix, schedule, window in (
            ("cluster", CLUSTER_SCHEDULE, args.maintenance.cluster),
            ("node-images", NODE_IMAGE_SCHEDULE, args.maintenance.node_images),
        ):
            if window is not None:
                containerservice.MaintenanceConfiguration(
                    f"{name}-{suffix}",
                    resource_group_name=args.resource_group_name,
                    resource_name_=args.cluster_name,
                    config_name=schedule,
                    maintenance_window=_window(window, args.maintenance.not_on),
                    opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
                )
        self.register_outputs({})


def _window(window: Window, not_on: Sequence[Days]) -> containerservice.MaintenanceWindowArgs:
    return containerservice.MaintenanceWindowArgs(
        schedule=containerservice.ScheduleArgs(
            weekly=containerservice.WeeklyScheduleArgs(
                day_of_week=window.day, interval_weeks=window.every_weeks
            )
        ),
        start_time=window.start,
        utc_offset=window.utc_offset,
        duration_hours=window.hours,
        not_allowed_dates=[
            containerservice.DateSpanArgs(start=days.start.isoformat(), end=days.end.isoformat())
            for days in not_on
        ]
        or None,
    )
