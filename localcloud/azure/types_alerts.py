# SPDX-License-Identifier: Apache-2.0
"""Azure's alerts: rule groups over a workspace's metrics, alerts on the activity log, and action groups.

Nothing is evaluated here: the rules are tested with Prometheus' own engine, and no one is told anything.
"""

import re
from typing import Final

from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, Knowledge
from localcloud.azure.records import Json
from localcloud.azure.types_basic import GROUP
from localcloud.azure.types_monitor import INSIGHTS

WORKSPACE: Final = "Microsoft.Monitor/accounts"
RULES_IN_A_GROUP: Final = 20
"""https://learn.microsoft.com/azure/azure-monitor/service-limits#prometheus-rules"""
DURATION: Final = re.compile(r"PT(\d+)M")
SHORT_NAME_CHARACTERS: Final = 12


def _rule_group_allowed(asked: Asked) -> None:
    scopes, rules = asked.inputs.get("scopes", []), asked.inputs.get("rules", [])
    if len(scopes) != 1 or f"/{WORKSPACE.lower()}/" not in scopes[0].lower():
        raise AzureError(400, "InvalidScope", f"scopes must be one {WORKSPACE}; it is {scopes}.")
    interval = DURATION.fullmatch(asked.inputs.get("interval", "PT1M"))
    if not interval or not 1 <= int(interval[1]) <= 15:
        raise AzureError(400, "InvalidInterval", "interval must be 1 to 15 minutes, such as PT1M.")
    if len(rules) > RULES_IN_A_GROUP:
        raise AzureError(400, "TooManyRules", f"{len(rules)} rules; a group has at most {RULES_IN_A_GROUP}.")
    for rule in rules:
        _check_rule(rule)


def _check_rule(rule: Json) -> None:
    name = rule.get("alert") or rule.get("record")
    if bool(rule.get("alert")) == bool(rule.get("record")):
        raise AzureError(400, "InvalidRule", "A rule has either `alert` or `record`.")
    if not rule.get("expression", "").strip():
        raise AzureError(400, "InvalidRule", f"Rule {name} has no expression.")
    if rule.get("for") is not None and not DURATION.fullmatch(rule["for"]):
        raise AzureError(
            400, "InvalidRule", f"Rule {name}: `for` is {rule['for']}, not a duration such as PT5M."
        )
    if not 0 <= rule.get("severity", 3) <= 4:
        raise AzureError(400, "InvalidRule", f"Rule {name}: severity is {rule['severity']}, not 0 to 4.")


def _activity_alert_allowed(asked: Asked) -> None:
    conditions = asked.inputs.get("condition", {}).get("allOf", [])
    # Azure refuses a rule that would see every event of a subscription.
    if not any(condition.get("field") == "category" for condition in conditions):
        raise AzureError(400, "InvalidCondition", "The condition must contain the field `category`.")
    if not asked.inputs.get("scopes"):
        raise AzureError(400, "InvalidScope", "scopes must name a subscription, resource group or resource.")


def _action_group_allowed(asked: Asked) -> None:
    short = asked.inputs.get("groupShortName", "")
    if not 1 <= len(short) <= SHORT_NAME_CHARACTERS:
        raise AzureError(
            400, "InvalidShortName", f"groupShortName must have 1 to {SHORT_NAME_CHARACTERS} characters."
        )


KNOWN: Final = {
    "alertsmanagement:PrometheusRuleGroup": Knowledge(
        id=f"{GROUP}/providers/Microsoft.AlertsManagement/prometheusRuleGroups/{{ruleGroupName}}",
        name="ruleGroupName",
        name_pattern=r"[^:@#{}%&+*<>?]{1,260}",
        name_rule="1 to 260 characters, none of :@#{}%&+*<>?",
        allowed=_rule_group_allowed,
    ),
    "monitor:ActionGroup": Knowledge(
        id=f"{INSIGHTS}/actionGroups/{{actionGroupName}}",
        name="actionGroupName",
        name_pattern=r"[^/&%?]{1,260}",
        name_rule="1 to 260 characters, none of /&%?",
        allowed=_action_group_allowed,
    ),
    "monitor:ActivityLogAlert": Knowledge(
        id=f"{INSIGHTS}/activityLogAlerts/{{activityLogAlertName}}",
        name="activityLogAlertName",
        name_pattern=r"[^/&%?]{1,260}",
        name_rule="1 to 260 characters, none of /&%?",
        allowed=_activity_alert_allowed,
    ),
}
