# SPDX-License-Identifier: Apache-2.0
"""Data sources and dashboards over Grafana's API, against simulated Grafana over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from components.azure.credentials import GRAFANA_SCOPE, credential
from components.azure.grafana_api import AGAIN, GrafanaApi, GrafanaError, held
from components.azure.patience import DeadlinePassed, Patience
from localcloud.azure.records import CUT_OFF, Fault
from localcloud.azure.store import Store
from tests.components.azure.conftest import Clock, grant

SOURCE: dict[str, Any] = {
    "name": "profiles",
    "type": "grafana-pyroscope-datasource",
    "access": "proxy",
    "url": "http://pyroscope.example:4040",
    "jsonData": {"keepCookies": ["pyroscope_git_session"]},
}
DASHBOARD: dict[str, Any] = {"title": "GPU memory", "panels": [{"id": 1, "type": "text", "title": "One"}]}


@pytest.fixture
def api(workspace: str, clock: Clock, told: list[str]) -> Iterator[GrafanaApi]:
    patience = Patience(clock=clock, progress=told.append, interval_seconds=20, again=AGAIN)
    with GrafanaApi(workspace, credential=credential(), scope=GRAFANA_SCOPE, patience=patience) as api:
        yield api


@pytest.fixture
def allowed(store: Store, api: GrafanaApi) -> GrafanaApi:
    grant(store)
    return api


def test_a_data_source_is_made_changed_and_removed(allowed: GrafanaApi) -> None:
    assert allowed.data_source("profiles") is None
    allowed.put_data_source("profiles", SOURCE)
    made = allowed.data_source("profiles")
    assert made is not None and held(SOURCE, made) == SOURCE
    allowed.put_data_source("profiles", {**SOURCE, "url": "http://other.example:4040"})
    changed = allowed.data_source("profiles")
    assert changed is not None and changed["url"] == "http://other.example:4040"
    allowed.delete_data_source("profiles")
    assert allowed.data_source("profiles") is None


def test_a_dashboard_is_made_changed_and_removed(allowed: GrafanaApi) -> None:
    allowed.put_dashboard("memory", DASHBOARD)
    allowed.put_dashboard("memory", {**DASHBOARD, "title": "All memory"})
    found = allowed.dashboard("memory")
    assert found is not None and (found["title"], found["uid"]) == ("All memory", "memory")
    allowed.delete_dashboard("memory")
    assert allowed.dashboard("memory") is None


def test_removing_what_is_gone_is_fine(allowed: GrafanaApi) -> None:
    allowed.delete_data_source("never-there")
    allowed.delete_dashboard("never-there")


def test_a_role_that_spreads_slowly_is_waited_for(
    api: GrafanaApi, store: Store, clock: Clock, told: list[str]
) -> None:
    clock.at[240] = lambda: grant(store)
    api.put_data_source("profiles", SOURCE)
    assert clock.now >= 240
    assert len(told) == 1 and "waiting for the role assignment to spread" in told[0]


def test_a_role_that_never_comes_is_given_up(api: GrafanaApi, clock: Clock) -> None:
    with pytest.raises(DeadlinePassed, match="403"):
        api.put_data_source("profiles", SOURCE)
    assert 560 <= clock.now <= 620


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_refusal_that_passes_is_outlasted(allowed: GrafanaApi, store: Store, status: int) -> None:
    store.add_fault(Fault(method="*", path="/api/datasources", status=status, code="NotNow", times=4))
    allowed.put_data_source("profiles", SOURCE)
    assert store.faults() == []


def test_a_name_that_is_taken_is_told_at_once(allowed: GrafanaApi, clock: Clock) -> None:
    allowed.put_data_source("profiles", SOURCE)
    with pytest.raises(GrafanaError, match="409"):
        allowed.put_data_source("another-uid", SOURCE)
    assert clock.now == 0


@pytest.mark.parametrize("status", [503, CUT_OFF])
def test_a_creation_whose_answer_was_lost_is_found_by_the_next_attempt(
    allowed: GrafanaApi, store: Store, status: int
) -> None:
    store.add_fault(Fault(method="POST", path="/api/datasources", status=status, code="Lost", after=True))
    allowed.put_data_source("profiles", SOURCE)
    assert store.faults() == []
    assert allowed.data_source("profiles") is not None


def test_what_grafana_adds_of_its_own_is_no_difference() -> None:
    found = {**SOURCE, "id": 7, "version": 3, "jsonData": {**SOURCE["jsonData"], "timeInterval": "15s"}}
    assert held(SOURCE, found) == SOURCE
    panels = {"panels": [{"id": 1, "type": "text", "title": "One", "pluginVersion": "11"}], "version": 2}
    assert held(DASHBOARD, {**panels, "title": "GPU memory"}) == DASHBOARD


@pytest.mark.parametrize(
    "found",
    [
        {**SOURCE, "url": "http://elsewhere"},
        {**SOURCE, "jsonData": {}},
        {key: value for key, value in SOURCE.items() if key != "access"},
    ],
)
def test_what_somebody_changed_is_a_difference(found: dict[str, Any]) -> None:
    assert held(SOURCE, found) != SOURCE


def test_a_panel_that_somebody_added_is_a_difference() -> None:
    assert held(DASHBOARD, {**DASHBOARD, "panels": [*DASHBOARD["panels"], {"id": 2}]}) != DASHBOARD
