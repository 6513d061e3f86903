# SPDX-License-Identifier: Apache-2.0
"""Maintenance windows, and days without them."""

from datetime import date
from typing import Any

import pytest

from components.settings.cluster import NewCluster
from tests.components.configs import accepted, only_problem


def not_on(*days: dict[str, Any]) -> dict[str, Any]:
    return {"cluster": {"maintenance": {"notOn": list(days)}}}


# As pulumi 3.274.1 passes on an unquoted and a quoted date of YAML.
@pytest.mark.parametrize("text", ["2026-12-20 00:00:00 +0000 UTC", "2026-12-20"])
def test_a_day_may_be_written_with_and_without_quotes(text: str) -> None:
    cluster = accepted(**not_on({"start": text, "end": text})).cluster
    assert isinstance(cluster, NewCluster)
    (days,) = cluster.maintenance.not_on
    assert (days.start, days.end) == (date(2026, 12, 20), date(2026, 12, 20))


def test_days_that_end_before_they_begin_are_refused() -> None:
    problem = only_problem(**not_on({"start": "2026-12-20", "end": "2026-12-19"}))
    assert problem.path == "gpuheap:cluster.maintenance.notOn[0].end"
    assert problem.allowed == "2026-12-20 or later"


@pytest.mark.parametrize(
    ("window", "key"),
    [
        ({"day": "Sonntag", "start": "02:00"}, "day"),
        ({"day": "Sunday", "start": "2:00"}, "start"),
        ({"day": "Sunday", "start": "02:00", "hours": 3}, "hours"),
        ({"day": "Sunday", "start": "02:00", "utcOffset": "1"}, "utcOffset"),
        ({"day": "Sunday", "start": "02:00", "everyWeeks": 5}, "everyWeeks"),
    ],
)
def test_a_window_that_aks_would_refuse_is_refused(window: dict[str, Any], key: str) -> None:
    problem = only_problem(cluster={"maintenance": {"nodeImages": window}})
    assert problem.path == f"gpuheap:cluster.maintenance.nodeImages.{key}"
