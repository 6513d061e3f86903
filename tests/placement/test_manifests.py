# SPDX-License-Identifier: Apache-2.0
"""Each manifest of the tables, as a real API server answers it: with ExtendedResourceToleration, and without."""

import re
from collections.abc import Iterator

import pytest

from tests.placement.api import Api
from tests.placement.cases import Case, cases
from tests.placement.conftest import Guarded, api_server, declared, enforce

pytestmark = pytest.mark.cluster

CASES = cases("pods.yaml", "owners.yaml", "amd.yaml", "spared.yaml")
ALICE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "alice"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
}
"""A user who may do everything: what is refused to them is refused by a policy."""


@pytest.fixture(scope="module", params=[True, False], ids=["with-plugin", "without-plugin"])
def plugin(request: pytest.FixtureRequest) -> bool:
    enabled: bool = request.param
    return enabled


@pytest.fixture(scope="module")
def api(
    plugin: bool, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Api]:
    if plugin:
        guarded: Guarded = request.getfixturevalue("guarded")
        guarded.api.create(ALICE)
        yield guarded.api
        return
    with (
        api_server(tmp_path_factory.mktemp("cluster"), plugin=False) as control_plane,
        Api(control_plane.kubeconfig) as api,
    ):
        enforce(api, declared())
        api.create(ALICE)
        yield api


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_manifest_gets_its_answer(api: Api, plugin: bool, case: Case) -> None:
    answer = api.create(case.manifest, dry_run=True, user=case.user)
    expected = case.refused if plugin else case.refused_without_plugin
    if expected is None:
        assert answer.accepted, answer.message
        assert answer.warnings == []
        return
    assert not answer.accepted, "it was accepted"
    policies = [] if expected.by == "api" else expected.by.split(" or ")
    by = re.findall(r"ValidatingAdmissionPolicy 'gpuheap-placement-(\w+)'", answer.message)
    assert set(by) <= set(policies) and bool(by) == bool(policies), answer.message
    for fragment in expected.says:
        assert fragment.replace("{path}", case.path) in answer.message


def test_the_server_finds_no_fault_with_the_expressions(api: Api) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    policies = {each["metadata"]["name"]: each for each in api.get(path)["items"]}
    assert set(policies) >= {f"gpuheap-placement-{name}" for name in ("amd", "general", "nvidia")}
    for policy in policies.values():
        assert not policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings")
