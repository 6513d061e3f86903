# SPDX-License-Identifier: Apache-2.0
"""What the policies declare: whom they look at, whom they spare, what they do. What they answer: tests/placement."""

from typing import Any

import pytest

from components.config_problems import ConfigError
from tests.components.conftest import EXISTING, run_program
from tests.components.recorder import Recording

OWNER = {"group": "ray.io", "version": "v1", "resource": "rayclusters", "kind": "RayCluster"}
POLICIES = ("nvidia", "amd", "general")


def binding(stack: Recording, policy: str) -> Any:
    return stack[f"placement-{policy}-binding"].inputs


@pytest.mark.parametrize("policy", POLICIES)
def test_a_new_cluster_refuses_and_an_existing_one_warns(
    dev: Recording, existing: Recording, policy: str
) -> None:
    assert binding(dev, policy)["spec"]["validationActions"] == ["Deny"]
    assert binding(existing, policy)["spec"]["validationActions"] == ["Warn"], "others work there already"


def test_the_configuration_chooses_otherwise() -> None:
    stack = run_program(EXISTING | {"gpuheap:placement": {"action": "Audit"}})
    assert binding(stack, "nvidia")["spec"]["validationActions"] == ["Audit"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rule_that_cannot_be_evaluated_refuses(dev: Recording, policy: str) -> None:
    assert dev[f"placement-{policy}"].inputs["spec"]["failurePolicy"] == "Fail"


def test_the_namespaces_that_are_spared_are_named_one_by_one() -> None:
    stack = run_program(EXISTING | {"gpuheap:placement": {"exemptNamespaces": ["platform"]}})
    (expression,) = binding(stack, "amd")["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    # The API server sets this label itself: nobody can give it to a namespace of another name.
    assert expression["key"] == "kubernetes.io/metadata.name"
    assert expression["operator"] == "NotIn"
    assert expression["values"] == [
        "aks-command",
        "aks-istio-egress",
        "aks-istio-ingress",
        "aks-istio-system",
        "app-routing-system",
        "azure-arc",
        "calico-system",
        "gadget",
        "gatekeeper-system",
        "gpuheap",
        "kube-node-lease",
        "kube-public",
        "kube-system",
        "platform",
        "tigera-operator",
    ]


def test_pods_and_all_that_makes_pods_are_looked_at_when_made_and_when_changed(dev: Recording) -> None:
    rules = dev["placement-nvidia"].inputs["spec"]["matchConstraints"]["resourceRules"]
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)
    looked_at = {(rule["apiGroups"][0], name) for rule in rules for name in rule["resources"]}
    assert looked_at == {
        ("", "pods"),
        ("", "replicationcontrollers"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
    }


def test_a_pools_taint_is_the_one_that_pods_must_tolerate(dev: Recording) -> None:
    (taint,) = dev["gpu-pool-gpu"].inputs["nodeTaints"]
    rules = dev["placement-nvidia"].inputs["spec"]["validations"]
    assert all(taint in rule["message"] for rule in rules)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"exemptNamespaces": ["kube-system\n"]}, "exemptNamespaces"),
        ({"exemptNamespaces": ["Platform"]}, "exemptNamespaces"),
        ({"action": "Refuse"}, "action"),
        ({"taints": {"amd": "amd.com/gpu=present:PreferNoSchedule"}}, "taints.amd"),
        ({"taints": {"nvidia": "a' || 'b=c:NoSchedule"}}, "taints.nvidia"),
        ({"customOwners": [OWNER | {"podSpecs": ["spec.a[].b[].c"]}]}, "customOwners[0].podSpecs"),
        ({"customOwners": [OWNER | {"podSpecs": ["spec' == '"]}]}, "customOwners[0].podSpecs"),
        ({"customOwners": [OWNER | {"kind": "It's", "podSpecs": ["spec"]}]}, "customOwners[0].kind"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(keys: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        run_program(EXISTING | {"gpuheap:placement": keys})
    assert [problem.path for problem in refusal.value.problems] == [f"gpuheap:placement.{path}"]
