# SPDX-License-Identifier: Apache-2.0
"""The pack's rules of placement give the answers of the API server's: on the tables that a real one is asked."""

import pytest

from policies.placement import problems
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
