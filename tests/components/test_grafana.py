# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, its roles and its content."""

import json

from components.roles import GRAFANA_ADMIN, MONITORING_DATA_READER
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
