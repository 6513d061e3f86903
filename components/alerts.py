# SPDX-License-Identifier: Apache-2.0
"""The alert rules as Azure's resources: a Prometheus rule group, activity-log alerts, and whom they tell.

Which rules there are, and what they ask, is in `alerts/`; what to do about one is in `docs/runbook.md`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
from pulumi_azure_native import alertsmanagement, monitor

from alerts.activity import ACTIVITY_ALERTS, ActivityAlert
from alerts.rules import Alert

INTERVAL: Final = "PT1M"
"""How often the rules are evaluated; Azure allows 1 to 15 minutes."""
RESOLVE_AFTER: Final = "PT5M"
"""How long a condition must be over before Azure calls the alert resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsArgs:
    name: str
    resource_group_name: pulumi.Input[str]
    location: str
    """That of the workspace whose metrics the rules read."""
    workspace_id: pulumi.Input[str]
    cluster_name: str
    rules: Sequence[Alert]
    runbook: str
    watched_ids: Sequence[pulumi.Input[str]]
    """Resource groups and resources whose activity is watched."""
    emails: Sequence[str]
    action_group_ids: Sequence[str]
    """Action groups that are there already."""
    depends_on: Sequence[pulumi.Resource]
    """What is changed while a stack is made, and would be told of otherwise."""
    tags: Mapping[str, str] = field(default_factory=dict)


class Alerts(pulumi.ComponentResource):
    """All alerts of one stack."""

    rule_group: alertsmanagement.PrometheusRuleGroup

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Alerts", name, {}, opts)
        told: list[pulumi.Input[str]] = [*args.action_group_ids]
        if args.emails:
            told.append(self._action_group(name, args).id)
        self.rule_group = self._rule_group(name, args, told)
        for alert in ACTIVITY_ALERTS:
            self._activity_alert(name, args, alert, told)
        self.register_outputs({"ruleGroupId": self.rule_group.id})

    def _action_group(self, name: str, args: AlertsArgs) -> monitor.ActionGroup:
        return monitor.ActionGroup(
            f"{name}-people",
            resource_group_name=args.resource_group_name,
            action_group_name=args.name,
            # Stands in the subject of the mails; 12 characters are the limit.
            group_short_name="gpuheap",
            location="global",
            enabled=True,
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(
                    name=address, email_address=address, use_common_alert_schema=True
                )
                for address in args.emails
            ],
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _rule_group(
        self, name: str, args: AlertsArgs, told: Sequence[pulumi.Input[str]]
    ) -> alertsmanagement.PrometheusRuleGroup:
        return alertsmanagement.PrometheusRuleGroup(
            f"{name}-rules",
            resource_group_name=args.resource_group_name,
            rule_group_name=args.name,
            location=args.location,
            description="GPU memory, and whether its profiles arrive. Generated: changes belong into alerts/rules.py.",
            # A workspace may hold several clusters' metrics: the rules are about this one.
            scopes=[args.workspace_id],
            cluster_name=args.cluster_name,
            enabled=True,
            interval=INTERVAL,
            rules=[_rule(rule, told) for rule in args.rules],
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _activity_alert(
        self, name: str, args: AlertsArgs, alert: ActivityAlert, told: Sequence[pulumi.Input[str]]
    ) -> monitor.ActivityLogAlert:
        leaf = monitor.AlertRuleAnyOfOrLeafConditionArgs
        return monitor.ActivityLogAlert(
            f"{name}-{alert.name}",
            resource_group_name=args.resource_group_name,
            activity_log_alert_name=f"{args.name}-{alert.name}",
            location="global",
            description=f"{alert.summary} {args.runbook}#{alert.name.lower()}",
            scopes=args.watched_ids,
            condition=monitor.AlertRuleAllOfConditionArgs(
                all_of=[
                    leaf(field="category", equals="Administrative"),
                    leaf(
                        any_of=[
                            monitor.AlertRuleLeafConditionArgs(field="operationName", equals=operation)
                            for operation in alert.operations
                        ]
                    ),
                    leaf(field="status", equals=alert.status),
                ]
            ),
            actions=monitor.ActionListArgs(
                action_groups=[monitor.ActionGroupArgs(action_group_id=id_) for id_ in told]
            ),
            enabled=True,
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )


def _rule(rule: Alert, told: Sequence[pulumi.Input[str]]) -> alertsmanagement.PrometheusRuleArgs:
    return alertsmanagement.PrometheusRuleArgs(
        alert=rule.name,
        expression=rule.expression,
        for_=f"PT{rule.for_minutes}M" if rule.for_minutes else None,
        severity=rule.severity,
        labels={"part_of": "gpuheap"},
        annotations={"summary": rule.summary, "runbook": rule.runbook},
        enabled=True,
        actions=[alertsmanagement.PrometheusRuleGroupActionArgs(action_group_id=id_) for id_ in told],
        resolve_configuration=alertsmanagement.PrometheusRuleResolveConfigurationArgs(
            auto_resolved=True, time_to_resolve=RESOLVE_AFTER
        ),
    )
