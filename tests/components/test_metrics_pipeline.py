# SPDX-License-Identifier: Apache-2.0
"""Metrics from the cluster to Azure Monitor."""

from tests.components.recorder import Recording


def test_the_rule_sends_prometheus_metrics_to_the_workspace(dev: Recording) -> None:
    rule = dev["metrics-rule"].inputs
    ((flow,), (account,)) = rule["dataFlows"], rule["destinations"]["monitoringAccounts"]
    assert flow["streams"] == ["Microsoft-PrometheusMetrics"]
    assert flow["destinations"] == [account["name"]]
    assert account["accountResourceId"] == "/id/metrics-workspace"
    assert rule["dataCollectionEndpointId"] == "/id/metrics-endpoint"


def test_the_rule_is_associated_with_the_cluster(dev: Recording) -> None:
    association = dev["metrics-association"].inputs
    assert association["resourceUri"] == "/id/cluster"
    assert association["dataCollectionRuleId"] == "/id/metrics-rule"


def test_names_stay_within_what_an_endpoint_may_be_called(dev: Recording) -> None:
    name = dev["metrics-endpoint"].inputs["dataCollectionEndpointName"]
    assert name == "MSProm-westeurope-gpuheap-dev"
    assert len(name) <= 44


def test_annotations_of_the_agents_namespace_are_followed(dev: Recording) -> None:
    settings = dev["metrics-scrape-settings"].inputs
    assert settings["metadata"] == {"name": "ama-metrics-settings-configmap", "namespace": "kube-system"}
    assert settings["data"]["pod-annotation-based-scraping"] == 'podannotationnamespaceregex = "gpuheap"'
