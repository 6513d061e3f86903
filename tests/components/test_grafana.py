# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, its roles and its content."""

import json

import pytest

from components.roles import GRAFANA_ADMIN, MONITORING_DATA_READER
from tests.components.configs import refused
from tests.components.conftest import EXISTING, run_program
from tests.components.recorder import Recording


def test_a_new_workspace_can_have_private_endpoints_and_reads_our_metrics(dev: Recording) -> None:
    workspace = dev["grafana"].inputs
    assert workspace["sku"] == {"name": "Standard"}
    assert workspace["identity"] == {"type": "SystemAssigned"}
    (integration,) = workspace["properties"]["grafanaIntegrations"]["azureMonitorWorkspaceIntegrations"]
    assert integration == {"azureMonitorWorkspaceResourceId": "/id/metrics-workspace"}


def test_grafanas_identity_reads_the_metrics_and_nothing_else(dev: Recording) -> None:
    role = dev["grafana-reads-metrics"].inputs
    assert role["roleDefinitionId"].endswith(f"/{MONITORING_DATA_READER}")
    assert role["scope"] == "/id/metrics-workspace"
    assert role["principalId"] == "grafana-principal"


def test_whoever_deploys_may_write_to_grafana(dev: Recording) -> None:
    role = dev["grafana-administrator"].inputs
    assert role["roleDefinitionId"].endswith(f"/{GRAFANA_ADMIN}")
    assert role["scope"] == "/id/grafana"
    assert (role["principalId"], role["principalType"]) == ("deployer-object", "ServicePrincipal")


def test_an_existing_workspace_gets_roles_at_its_own_scope(existing: Recording) -> None:
    assert existing["grafana-administrator"].inputs["scope"] == "/existing/grafana"
    assert existing["grafana-reads-metrics"].inputs["principalId"] == "existing-grafana-principal"
    assert existing.outputs["grafanaUrl"] == "https://existing.example"


def test_the_pyroscope_data_source_is_that_of_the_published_procedure(dev: Recording) -> None:
    source = dev["grafana-content-pyroscope"].inputs
    assert source["uid"] == "local-pyroscope"
    assert json.loads(source["definition"]) == {
        "name": "local-pyroscope",
        "type": "grafana-pyroscope-datasource",
        "access": "proxy",
        "url": "http://pyroscope.gpuheap-dev.internal:4040",
        "jsonData": {"keepCookies": ["pyroscope_git_session"]},
    }


def test_the_prometheus_data_source_uses_the_managed_identity(dev: Recording) -> None:
    source = json.loads(dev["grafana-content-prometheus"].inputs["definition"])
    assert source["url"] == "https://prometheus.example"
    assert source["jsonData"]["azureCredentials"] == {"authType": "msi"}


def test_the_dashboards_variables_start_at_our_data_sources(dev: Recording) -> None:
    dashboard = json.loads(dev["grafana-content-dashboard"].inputs["definition"])
    chosen = {
        v["name"]: v["current"]["value"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"
    }
    assert chosen == {
        "prom_ds": dev["grafana-content-prometheus"].inputs["uid"],
        "pyroscope_ds": dev["grafana-content-pyroscope"].inputs["uid"],
    }


def test_data_sources_come_when_the_way_to_pyroscope_is_open(dev: Recording) -> None:
    assert "private-link-approval" in dev["grafana-content-pyroscope"].needs


def test_no_provider_carries_a_secret_or_a_value(dev: Recording) -> None:
    for name in ("private-link-approval", "grafana-content-pyroscope", "grafana-content-dashboard"):
        provider = dev[name].request.object["__provider"]
        assert isinstance(provider, str), f"{name}: a wrapped value would be a secret that every diff shows"
        assert len(provider) < 200, f"{name}: pickled by value"


def test_dashboards_are_in_a_folder_with_rights(dev: Recording) -> None:
    folder = dev["grafana-content-folder"]
    assert folder.inputs["title"] == "GPU profiling"
    assert json.loads(folder.inputs["permissions"]) == {"Viewer": 1, "Editor": 2}
    assert dev["grafana-content-dashboard"].inputs["folder"] == folder.inputs["uid"]
    assert "grafana-content-folder" in dev["grafana-content-dashboard"].needs


def test_a_published_dashboard_and_a_folder_of_ones_own_are_choices() -> None:
    chosen = {
        "folder": {"title": "Team", "viewers": "none", "editors": "admin"},
        "publishedDashboard": {"url": "https://example.com/d.json", "sha256": "ab" * 32},
    }
    recording = run_program({**EXISTING, "gpuheap:grafana": chosen})
    assert json.loads(recording["grafana-content-folder"].inputs["permissions"]) == {"Editor": 4}
    published = recording["grafana-content-published"].inputs
    assert (published["url"], published["sha256"]) == ("https://example.com/d.json", "ab" * 32)
    assert "grafana-content-folder" in recording["grafana-content-published"].needs


def test_nothing_is_published_unless_it_is_asked_for(dev: Recording) -> None:
    assert "grafana-content-published" not in dev.resources


@pytest.mark.parametrize(
    "chosen",
    [
        {"url": "http://example.com/d.json", "sha256": "ab" * 32},
        {"url": "https://example.com/d.json", "sha256": "ab"},
    ],
)
def test_a_published_dashboard_needs_https_and_a_checksum(chosen: dict[str, str]) -> None:
    assert "gpuheap:grafana.publishedDashboard" in "\n".join(
        map(str, refused(grafana={"publishedDashboard": chosen}))
    )
