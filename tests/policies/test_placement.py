# SPDX-License-Identifier: Apache-2.0
"""The pack's rules of placement give the answers of the API server's: on the tables that a real one is asked."""

import pytest

from policies.placement import problems, vendors_with
from tests.components.recorder import Recording
from tests.placement.cases import Case, cases

CASES = [
    case
    for case in cases("pods.yaml", "owners.yaml", "amd.yaml", "spared.yaml")
    # What the API server's own validation refuses, and who asks, is not known at a preview.
    if case.user is None and not (case.refused and case.refused.by == "api")
]
GROUPS = {"v1": "core/v1", "apps/v1": "apps/v1", "batch/v1": "batch/v1"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_is_the_api_servers(case: Case) -> None:
    token = f"kubernetes:{GROUPS[case.manifest['apiVersion']]}:{case.kind}"
    found = list(problems(token, case.manifest, exempt=["platform"]))
    expected = case.refused_without_plugin
    assert bool(found) == bool(expected), found
    for fragment in expected.says if expected else ():
        assert fragment.replace("{path}", case.path) in "\n".join(found)


def test_what_makes_no_pods_is_nobodys_concern() -> None:
    assert not list(problems("kubernetes:core/v1:ConfigMap", {"spec": {"nodeName": "x"}}))
    assert not list(problems("azure-native:resources:ResourceGroup", {"metadata": {}}))


def test_an_owner_without_a_pod_template_is_left_to_the_api_server() -> None:
    assert not list(problems("kubernetes:apps/v1:Deployment", {"metadata": {}, "spec": {}}))


def test_the_stack_keeps_the_rules(dev: Recording) -> None:
    for resource in dev.resources.values():
        assert not list(problems(resource.type, resource.inputs)), resource.name


def test_nodes_may_have_another_taint_and_vendors_the_same() -> None:
    vendors = vendors_with({"nvidia": "sku=gpu:NoSchedule", "amd": "sku=gpu:NoSchedule"})

    def found(resource: str, key: str) -> list[str]:
        container = {"name": "train", "resources": {"limits": {resource: 1}}}
        spec = {"containers": [container], "tolerations": [{"key": key, "operator": "Exists"}]}
        return list(problems("kubernetes:core/v1:Pod", {"spec": spec}, vendors=vendors))

    assert [found(resource, "sku") for resource in ("nvidia.com/gpu", "amd.com/gpu")] == [[], []]
    (problem,) = found("nvidia.com/gpu", "nvidia.com/gpu")
    assert "does not tolerate the taint sku=gpu:NoSchedule" in problem


@pytest.mark.parametrize("taints", [{"intel": "a=b:NoSchedule"}, {"amd": "sku"}])
def test_a_taint_that_cannot_be_one_is_refused(taints: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^taints: "):
        vendors_with(taints)
