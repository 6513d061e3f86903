# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: what it declares for the stack `dev`, and the order in which that is destroyed."""

from itertools import pairwise
from typing import Any

import pytest
import yaml

from components.config_problems import ConfigError
from tests.components.conftest import CHECKOUT, run_program
from tests.components.recorder import KUBECONFIG, SUBSCRIPTION, Recording

# Each is gone before the next is touched.
ORDER_OF_DESTRUCTION = (
    "grafana-content-dashboard",
    "grafana-content-pyroscope",
    "private-link-endpoint",
    "pyroscope-private-link",
    "pyroscope",
    "inspektor-gadget",
    "cluster",
)


@pytest.mark.parametrize(("first", "then"), list(pairwise(ORDER_OF_DESTRUCTION)))
def test_destruction_goes_from_the_dashboard_to_the_cluster(dev: Recording, first: str, then: str) -> None:
    assert then in dev.outlived_by(first), f"{then} must still be there while {first} is removed"


@pytest.mark.parametrize("needed", ["network-nodes", "network-private-link", "cluster-network-contributor"])
def test_what_the_cloud_controller_uses_outlives_the_load_balancer(dev: Recording, needed: str) -> None:
    assert needed in dev.outlived_by("pyroscope-private-link")


def test_what_a_silent_cluster_leaves_is_removed_in_between_the_service_and_the_cluster(
    dev: Recording,
) -> None:
    assert "pyroscope-private-link-removal" in dev.outlived_by("pyroscope-private-link")
    assert {"cluster", "network-private-link"} <= set(dev.outlived_by("pyroscope-private-link-removal"))


@pytest.mark.parametrize("content", ["dashboard", "pyroscope", "prometheus"])
def test_the_right_to_write_to_grafana_outlives_what_was_written(dev: Recording, content: str) -> None:
    assert "grafana-administrator" in dev.outlived_by(f"grafana-content-{content}")


def test_nothing_is_left_to_a_random_name(dev: Recording) -> None:
    unnamed = [
        resource.name
        for resource in dev.resources.values()
        if resource.type.startswith(("azure-native:", "kubernetes:"))
        and not any(key == "name" or key.lower().endswith("name") for key in resource.inputs)
        and "name" not in resource.inputs.get("metadata", {})
    ]
    assert unnamed == [], "an automatic name differs between two previews"


def test_two_runs_declare_the_same(dev: Recording) -> None:
    again = run_program(yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"])
    assert {name: resource.inputs for name, resource in again.resources.items()} == {
        name: resource.inputs for name, resource in dev.resources.items()
    }


def test_outputs_hold_what_people_and_verify_ask_for(dev: Recording) -> None:
    assert set(dev.outputs) == {
        "agentDaemonSet",
        "agentImage",
        "alertRuleGroupId",
        "clusterName",
        "dashboardUrl",
        "grafanaUrl",
        "inspektorGadgetExtensionId",
        "kubeconfig",
        "managedPrivateEndpointId",
        "privateLinkServiceId",
        "profilers",
        "prometheusDataSourceUid",
        "pyroscopeDataSourceUid",
        "pyroscopeNamespace",
        "pyroscopeUrl",
        "resourceGroup",
    }
    assert dev.outputs["dashboardUrl"] == "https://grafana.example/d/gpuheap-memory"
    assert dev.outputs["privateLinkServiceId"] == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/gpuheap-dev"
        "/providers/Microsoft.Network/privateLinkServices/gpuheap-test-pyroscope"
    )


def test_the_kubeconfig_is_a_secret_wherever_it_goes(dev: Recording) -> None:
    assert dev.secrets == {"kubeconfig"}
    assert dev.outputs["kubeconfig"] == KUBECONFIG
    kubeconfig = dev["cluster-kubernetes"].request.object["kubeconfig"]
    assert "4dabf18193072939515e22adb298388d" in str(kubeconfig), (
        "the mark by which the engine knows a secret"
    )


def test_what_exists_is_used_and_not_declared(existing: Recording) -> None:
    types = {resource.type for resource in existing.resources.values()}
    assert types.isdisjoint(
        {
            "azure-native:containerservice:ManagedCluster",
            "azure-native:containerservice:AgentPool",
            "azure-native:network:VirtualNetwork",
            "azure-native:dashboard:Grafana",
            "docker-build:index:Image",
        }
    )
    asked = {call.token: call.args for call in existing.asked}
    assert asked["azure-native:containerservice:getManagedCluster"] == {
        "resourceGroupName": "shared-rg",
        "resourceName": "shared",
    }
    assert asked["azure-native:dashboard:getGrafana"] == {
        "resourceGroupName": "observability",
        "workspaceName": "dashboards",
    }


def test_settings_of_an_existing_cluster_are_left_alone(existing: Recording) -> None:
    assert not existing.of_type("kubernetes:core/v1:ConfigMap")


@pytest.mark.parametrize(
    "broken",
    [
        {"gpuheap:gpuPools": [{"name": "gpu", "vmSize": "Standard_D4s_v5"}]},
        {"gpuheap:network": {"addressSpace": "10.40.0.0/40"}},
        {"gpuheap:unheardOf": "x"},
        {"gpuheap:privateLink": {"endpointName": "more-than-twenty-characters"}},
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_declared(broken: dict[str, Any]) -> None:
    config = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"]
    with pytest.raises(ConfigError):
        run_program(config | broken)
