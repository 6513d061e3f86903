# SPDX-License-Identifier: Apache-2.0
"""The namespaces of GPU workloads: shares, defaults, accounts, borders."""

from typing import Any

import pytest

from components.config_problems import ConfigError
from components.network_holes import Egress, policies
from tests.components.conftest import EXISTING, run_program
from tests.components.recorder import Recording

QUOTA = "kubernetes:core/v1:ResourceQuota"


@pytest.fixture(scope="module")
def research() -> Recording:
    """One workspace with everything, on a cluster with slices."""
    pools = [
        {
            "name": "cut",
            "vmSize": "Standard_NC24ads_A100_v4",
            "mig": {"profile": "1g", "strategy": "mixed"},
        }
    ]
    workspace = {
        "name": "research",
        "gpus": {"nvidia.com/gpu": 8},
        "podSecurity": "restricted",
        "sameNamespace": False,
        "metricsPort": 8000,
        "priority": 1000,
        "labels": {"team": "research"},
        "egress": [{"name": "features", "namespaces": ["feature-store"], "ports": [6566]}],
    }
    return run_program(EXISTING | {"gpuheap:gpuPools": pools, "gpuheap:workspaces": [workspace]})


def policy_names(stack: Recording, namespace: str) -> set[str]:
    return {
        each.inputs["metadata"]["name"]
        for each in stack.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        if each.inputs["metadata"]["namespace"] == namespace
    }


def test_a_new_cluster_has_one_for_training_and_one_for_inference(dev: Recording) -> None:
    quotas = {each.inputs["metadata"]["namespace"]: each.inputs["spec"] for each in dev.of_type(QUOTA)}
    hard = {"hard": {"requests.nvidia.com/gpu": "4", "requests.amd.com/gpu": "0"}}
    assert quotas == {"gpu-training": hard, "gpu-inference": hard}


def test_a_cluster_that_was_there_gets_none_unless_they_are_named(existing: Recording) -> None:
    assert not existing.of_type(QUOTA)


def test_every_resource_that_the_pools_offer_has_its_number(research: Recording) -> None:
    assert research["workspaces-research-quota"].inputs["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "8",
        "requests.amd.com/gpu": "0",
        "requests.nvidia.com/mig-1g.10gb": "0",
    }, "a name that a quota lacks would not be limited"


def test_without_numbers_a_workspace_gets_four_of_what_the_pools_offer() -> None:
    pools = [{"name": "instinct", "vmSize": "Standard_ND96isr_MI300X_v5"}]
    stack = run_program(EXISTING | {"gpuheap:gpuPools": pools, "gpuheap:workspaces": [{"name": "a"}]})
    assert stack["workspaces-a-quota"].inputs["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "0",
        "requests.amd.com/gpu": "4",
    }


def test_the_namespace_has_its_level_of_pod_security_and_its_labels(research: Recording) -> None:
    assert research["workspaces-research"].inputs["metadata"] == {
        "name": "research",
        "labels": {
            "team": "research",
            "gpuheap/workspace": "research",
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
            "pod-security.kubernetes.io/audit": "restricted",
        },
    }


@pytest.mark.parametrize("account", ["default", "workload"])
def test_no_account_brings_a_token(research: Recording, account: str) -> None:
    inputs = research[f"workspaces-research-{account}"].inputs
    assert inputs["metadata"] == {"name": account, "namespace": "research"}
    assert inputs["automountServiceAccountToken"] is False


def test_the_account_that_kubernetes_makes_itself_is_left_to_go_with_its_namespace(
    research: Recording,
) -> None:
    retained = {
        account: research[f"workspaces-research-{account}"].request.retainOnDelete
        for account in ("default", "workload")
    }
    assert retained == {"default": True, "workload": False}, "deleted alone, it would be there again at once"


def test_a_container_that_says_nothing_gets_the_defaults(dev: Recording) -> None:
    (limit,) = dev["workspaces-gpu-training-defaults"].inputs["spec"]["limits"]
    assert limit == {
        "type": "Container",
        "defaultRequest": {"cpu": "500m", "memory": "2Gi"},
        "default": {"memory": "16Gi"},
    }


def test_a_priority_is_a_class_of_the_namespaces_name(research: Recording, dev: Recording) -> None:
    inputs = research["workspaces-research-priority"].inputs
    assert (inputs["metadata"]["name"], inputs["value"]) == ("research", 1000)
    assert "workspaces-gpu-training-priority" not in dev.resources


def test_borders_are_closed_but_for_what_is_named(dev: Recording, research: Recording) -> None:
    always = {"default-deny", "allow-dns"}
    assert policy_names(dev, "gpu-training") == always | {
        "allow-same-namespace",
        "allow-egress-model-downloads",
    }
    assert policy_names(research, "research") == always | {"allow-metrics", "allow-egress-features"}


def test_the_declared_policies_are_those_of_the_api(research: Recording) -> None:
    expected: dict[str, Any] = {
        "podSelector": {},
        "policyTypes": ["Egress"],
        "egress": [
            {
                "to": [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "feature-store"}}}
                ],
                "ports": [{"protocol": "TCP", "port": 6566}],
            }
        ],
    }
    assert research["workspaces-research-allow-egress-features"].inputs["spec"] == expected


def test_the_whole_internet_is_without_private_addresses_and_azures_own() -> None:
    everything = Egress(name="all", ranges=("0.0.0.0/0",), ports=(443,))
    specs = policies(same_namespace=False, egress=[everything], metrics_port=None)
    assert specs["allow-egress-all"]["egress"] == [
        {
            "to": [
                {
                    "ipBlock": {
                        "cidr": "0.0.0.0/0",
                        "except": [
                            "10.0.0.0/8",
                            "100.64.0.0/10",
                            "169.254.0.0/16",
                            "172.16.0.0/12",
                            "192.168.0.0/16",
                            "168.63.129.16/32",
                        ],
                    }
                }
            ],
            "ports": [{"protocol": "TCP", "port": 443}],
        }
    ]


def test_a_private_range_that_is_named_is_open() -> None:
    store = Egress(name="store", ranges=("10.7.0.0/16",))
    specs = policies(same_namespace=False, egress=[store], metrics_port=None)
    assert specs["allow-egress-store"]["egress"] == [{"to": [{"ipBlock": {"cidr": "10.7.0.0/16"}}]}]


@pytest.mark.parametrize(
    ("workspace", "path"),
    [
        ({"name": "Research"}, "gpuheap:workspaces[0].name"),
        ({"name": "a", "gpus": {"cpu": 1}}, "gpuheap:workspaces[0].gpus"),
        ({"name": "a", "egress": [{"name": "open"}]}, "gpuheap:workspaces[0].egress[0]"),
        (
            {"name": "a", "egress": [{"name": "x", "ranges": ["10.0.0.1/8"]}]},
            "gpuheap:workspaces[0].egress[0].ranges[0]",
        ),
        ({"name": "a", "unheardOf": 1}, "gpuheap:workspaces[0].unheardOf"),
    ],
)
def test_what_cannot_work_is_refused(workspace: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        run_program(EXISTING | {"gpuheap:workspaces": [workspace]})
    assert [problem.path for problem in refusal.value.problems] == [path]
