# SPDX-License-Identifier: Apache-2.0
"""Alert rules, activity-log alerts and who is told."""

from typing import Any

import pytest

from alerts.activity import ACTIVITY_ALERTS
from tests.components.configs import refused
from tests.components.conftest import EXISTING, run_program
from tests.components.recorder import Recording

RULE_GROUP = "azure-native:alertsmanagement:PrometheusRuleGroup"
ACTION_GROUP = "azure-native:monitor:ActionGroup"
ACTIVITY = "azure-native:monitor:ActivityLogAlert"
ONCALL = "/subscriptions/s/resourceGroups/shared/providers/Microsoft.Insights/actionGroups/oncall"


def _with(settings: dict[str, Any], base: dict[str, Any] = EXISTING) -> Recording:
    return run_program({**base, "gpuheap:alerts": settings})


def _rule(recording: Recording, name: str) -> dict[str, Any]:
    rules = recording.only(RULE_GROUP).inputs["rules"]
    (found,) = (rule for rule in rules if rule["alert"] == name)
    return dict(found)


def test_rules_read_this_clusters_metrics_of_our_workspace(dev: Recording) -> None:
    group = dev.only(RULE_GROUP).inputs
    assert group["scopes"] == ["/id/metrics-workspace"]
    assert group["clusterName"] == "gpuheap-dev"
    assert group["location"] == "westeurope"


def test_every_rule_resolves_by_itself_and_names_its_runbook(dev: Recording) -> None:
    for rule in dev.only(RULE_GROUP).inputs["rules"]:
        assert rule["resolveConfiguration"]["autoResolved"] is True
        assert rule["annotations"]["runbook"].endswith(f"#{rule['alert'].lower()}")
        assert rule["severity"] in range(5)


def test_a_pools_capacity_follows_from_its_size(dev: Recording) -> None:
    # 80 GiB of an A100 on the nodes of the pool that the dev stack calls gpu
    expression = _rule(dev, "GpuMemoryNearCapacity")["expression"]
    assert 'node=~"aks-gpu-.*"' in expression
    assert "/ 85899345920 > 0.9" in expression


def test_capacity_and_thresholds_can_be_said() -> None:
    recording = _with({"gpuMemoryGib": 20, "nearCapacityPercent": 75, "growthMib": 512})
    assert "/ 21474836480 > 0.75" in _rule(recording, "GpuMemoryNearCapacity")["expression"]
    assert "> 536870912" in _rule(recording, "GpuMemoryGrowsWithoutPlateau")["expression"]


def test_without_a_known_capacity_the_gpus_exporter_is_asked(existing: Recording) -> None:
    expression = _rule(existing, "GpuMemoryNearCapacity")["expression"]
    assert "DCGM_FI_DEV_FB_USED" in expression
    assert "gpuheap_memory" not in expression


def test_nobody_is_told_unless_the_stack_says_whom(existing: Recording) -> None:
    assert existing.of_type(ACTION_GROUP) == []
    assert _rule(existing, "GpuOutOfMemory").get("actions", []) == []


def test_addresses_and_groups_that_are_there_are_both_told() -> None:
    recording = _with({"emails": ["oncall@example.com"], "actionGroups": [ONCALL]})
    (receiver,) = recording.only(ACTION_GROUP).inputs["emailReceivers"]
    assert receiver["emailAddress"] == "oncall@example.com"
    told = [ONCALL, "/id/alerts-people"]
    assert [action["actionGroupId"] for action in _rule(recording, "GpuOutOfMemory")["actions"]] == told
    for alert in recording.of_type(ACTIVITY):
        assert [group["actionGroupId"] for group in alert.inputs["actions"]["actionGroups"]] == told


def test_activity_is_watched_in_our_group_and_on_the_cluster_once_the_way_is_open(dev: Recording) -> None:
    alerts = dev.of_type(ACTIVITY)
    assert len(alerts) == len(ACTIVITY_ALERTS)
    for alert in alerts:
        assert alert.inputs["scopes"] == ["/id/resource-group", "/id/cluster"]
        fields = [condition.get("field") for condition in alert.inputs["condition"]["allOf"]]
        assert fields == ["category", None, "status"]
        assert "private-link-approval" in alert.needs, "our own approval is nothing to be told of"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"emails": ["nobody"]}, "gpuheap:alerts.emails"),
        ({"nearCapacityPercent": 101}, "1 to 100 percent"),
        ({"actionGroups": ["oncall"]}, "gpuheap:alerts.actionGroups"),
        ({"email": "a@example.com"}, "did you mean gpuheap:alerts.emails?"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    assert words in "\n".join(map(str, refused(alerts=settings)))
