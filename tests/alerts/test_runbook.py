# SPDX-License-Identifier: Apache-2.0
"""Rules and runbook belong together: each alert has its heading, and asks for metrics that are served."""

import re
from pathlib import Path
from typing import Final

import pytest

from alerts.activity import ACTIVITY_ALERTS
from alerts.rules import RUNBOOK, Thresholds, Watched, alerts
from gpuheap import contract

CHECKOUT: Final = Path(__file__).resolve().parents[2]
ALL: Final = alerts(
    Thresholds(), Watched(agent="gpuheap/agent", gadget="gadget/gadget", pyroscope_namespace="gadget")
)


@pytest.fixture(scope="module")
def anchors() -> set[str]:
    """The anchors of the runbook's headings, by GitHub's rule for one word."""
    return {
        heading.lower()
        for heading in re.findall(r"^### (\S+)$", (CHECKOUT / RUNBOOK).read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize(
    "link", [*(rule.runbook for rule in ALL), *(alert.runbook for alert in ACTIVITY_ALERTS)]
)
def test_every_alert_links_to_its_heading(link: str, anchors: set[str]) -> None:
    file, _, anchor = link.partition("#")
    assert file == RUNBOOK
    assert anchor in anchors


def test_every_heading_of_an_alert_has_its_alert(anchors: set[str]) -> None:
    assert anchors == {rule.name.lower() for rule in ALL} | {alert.name.lower() for alert in ACTIVITY_ALERTS}


def test_the_runbook_may_be_published_elsewhere() -> None:
    watched = Watched(agent=None, gadget=None, pyroscope_namespace="gadget")
    (rule, *_) = alerts(Thresholds(), watched, runbook="https://wiki.example/gpu")
    assert rule.runbook == "https://wiki.example/gpu#gpumemorynearcapacity"


def test_what_is_not_installed_is_not_watched() -> None:
    watched = Watched(agent=None, gadget=None, pyroscope_namespace="gadget")
    assert [rule.name for rule in alerts(Thresholds(), watched)] == [
        "GpuMemoryNearCapacity",
        "PyroscopeNotReady",
    ]


def test_every_metric_of_ours_is_one_that_is_served() -> None:
    served = {
        value for value in vars(contract).values() if isinstance(value, str) and value.startswith("gpuheap_")
    }
    asked = {name for rule in ALL for name in re.findall(r"\bgpuheap_\w+", rule.expression)}
    assert asked <= served
    assert asked, "the rules ask for none of our metrics"
