# SPDX-License-Identifier: Apache-2.0
"""The policies on a real API server, beyond the tables: changes, debugging, many containers, types of operators."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from components.gpu_vendors import GPU_VENDORS, Taint
from components.placement import Action
from tests.placement.api import Answer, Api
from tests.placement.conftest import BINDING, Guarded, declared
from tests.placement.objects import GPU, TOLERATION, container, pod, training_job
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

MANY = 300
"""Containers in one pod: far above what a node would run."""


@pytest.fixture(scope="module")
def api(guarded: Guarded) -> Api:
    return guarded.api


def test_a_pod_from_before_the_policies_can_still_be_labelled(api: Api) -> None:
    answer = api.patch("/api/v1/namespaces/work/pods/old", {"metadata": {"labels": {"seen": "yes"}}})
    assert answer.accepted, answer.message


def test_an_owner_from_before_the_policies_can_still_be_scaled(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/work/deployments/old"
    answer = api.patch(path, {"spec": {"replicas": 0, "paused": True}})
    assert answer.accepted, answer.message


def test_an_owner_from_before_the_policies_is_held_to_them_when_its_pods_change(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/work/deployments/old"
    change = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}
    answer = api.patch(path, change)
    assert "but no container asks for one: container main" in answer.message


def test_a_pod_that_waits_for_a_node_cannot_be_given_the_toleration_later(api: Api) -> None:
    assert api.create(pod("waits")).accepted
    path = "/api/v1/namespaces/work/pods/waits"
    ours = api.get(path)["spec"]["tolerations"]
    answer = api.patch(path, {"spec": {"tolerations": [*ours, TOLERATION]}})
    assert "but no container asks for one: container main" in answer.message


def test_a_pod_with_a_gpu_can_be_debugged(api: Api) -> None:
    made = api.create(pod("debugged", containers=[container("train", GPU)], tolerations=[TOLERATION]))
    assert made.accepted, made.message
    answer = debug(api, {"name": "shell", "image": "registry.example/image"})
    assert answer.accepted, answer.message


def test_a_container_added_for_debugging_cannot_take_a_gpu(api: Api) -> None:
    answer = debug(api, container("taker", GPU))
    assert not answer.accepted
    assert "Forbidden: cannot be set for an Ephemeral Container" in answer.message


def debug(api: Api, ephemeral: Mapping[str, Any]) -> Answer:
    path = "/api/v1/namespaces/work/pods/debugged/ephemeralcontainers"
    return api.patch(path, {"spec": {"ephemeralContainers": [ephemeral]}}, dry_run=True)


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_pod_of_very_many_containers_is_within_the_servers_budget(api: Api, vendor: str) -> None:
    resource = f"{vendor}.com/gpu"
    asking = {"limits": {resource: 1}}
    answer = api.create(
        pod(
            "many",
            initContainers=[container(f"init-{number}", asking) for number in range(MANY)],
            containers=[container(f"main-{number}", asking) for number in range(MANY)],
            tolerations=[{"key": resource, "operator": "Exists"}],
        ),
        dry_run=True,
    )
    assert answer.accepted, answer.message


def test_a_refusal_of_very_many_containers_names_the_first_and_fits_into_a_message(api: Api) -> None:
    slices = [
        container(f"{'inference' * 5}-{number}", {"limits": {"nvidia.com/mig-1g.10gb": 1}})
        for number in range(MANY)
    ]
    answer = api.create(pod("many", containers=slices), dry_run=True)
    assert f"containers {'inference' * 5}-0 (nvidia.com/mig-1g.10gb), " in answer.message
    assert "… asks for a GPU but the pod does not tolerate the taint nvidia.com/gpu=present" in answer.message
    assert "Add to spec: tolerations:" in answer.message


def test_an_operators_type_is_refused_where_its_user_sees_it(api: Api) -> None:
    job = training_job(
        launcher={"spec": pod("x")["spec"]},
        worker=pod("x", containers=[container("train", GPU)])["spec"],
    )
    answer = api.create(job, dry_run=True)
    assert "trainingjobs.training.example.com" in answer.message
    assert "container train (nvidia.com/gpu) asks for a GPU" in answer.message
    assert "Add to spec.replicas{}.template.spec or spec.launcher.spec: tolerations:" in answer.message


def test_an_operators_type_that_is_right_is_accepted(api: Api) -> None:
    worker = pod("x", containers=[container("train", GPU)], tolerations=[TOLERATION])["spec"]
    answer = api.create(training_job(launcher={"spec": pod("x")["spec"]}, worker=worker), dry_run=True)
    assert answer.accepted, answer.message


def test_an_operators_type_without_any_pod_is_nobodys_concern(api: Api) -> None:
    answer = api.create(training_job(launcher=None, worker=None), dry_run=True)
    assert answer.accepted, answer.message


def test_each_pod_spec_in_a_list_is_held_to_the_rules(api: Api) -> None:
    good = {"template": {"spec": {"template": pod("x")}}}
    bad = {"template": {"spec": {"template": pod("x", tolerations=[TOLERATION])}}}
    for jobs, refused in (([good, good], False), ([good, bad], True), ([], False)):
        manifest = {
            "apiVersion": "training.example.com/v1",
            "kind": "JobSet",
            "metadata": {"name": "set", "namespace": "work"},
            "spec": {"jobs": jobs},
        }
        answer = api.create(manifest, dry_run=True)
        assert ("but no container asks for one: container main" in answer.message) == refused


def bind(api: Api, action: Action, namespace: str) -> None:
    """The policies with another action for one namespace."""
    for manifest in declared(action=action):
        if manifest["kind"] == BINDING:
            metadata = {"name": f"{manifest['metadata']['name']}-{action.lower()}"}
            assert api.create({**only_in(namespace, manifest), "metadata": metadata}).accepted


def only_in(namespace: str, binding: Mapping[str, Any]) -> dict[str, Any]:
    name = {"kubernetes.io/metadata.name": namespace}
    spec = {**binding["spec"], "matchResources": {"namespaceSelector": {"matchLabels": name}}}
    return {**binding, "spec": spec}


def test_a_warning_says_the_same_and_lets_the_object_in(api: Api) -> None:
    bind(api, "Warn", "warned")
    bad = pod("bad", namespace="warned", tolerations=[TOLERATION])

    def warned() -> Answer | None:
        answer = api.create(bad, dry_run=True)
        return answer if answer.warnings else None

    answer = wait_for("the bindings that warn are in force", warned)
    assert answer.accepted
    assert any("but no container asks for one: container main" in warning for warning in answer.warnings)


FAILURE = "validation.policy.admission.k8s.io/validation_failure"
"""The annotation: https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/"""


def test_audit_lets_the_object_in_silently_and_tells_the_log(guarded: Guarded) -> None:
    bind(guarded.api, "Audit", "audited")
    bad = pod("bad", namespace="audited", tolerations=[TOLERATION])
    (failure,) = wait_for("the bindings that audit are in force", partial(audited, guarded, bad))
    assert (failure["policy"], failure["validationActions"]) == ("gpuheap-placement-nvidia", ["Audit"])
    assert "but no container asks for one: container main" in failure["message"]
    assert "or remove the toleration" in failure["message"], "the whole of what Deny would have said"


def audited(guarded: Guarded, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the object, which is let in without a word; what the audit log says of it."""
    answer = guarded.api.create(manifest, dry_run=True)
    assert (answer.accepted, answer.warnings) == (True, [])
    events = [json.loads(line) for line in guarded.control_plane.audit_log.read_text().splitlines()]
    (newest, *_) = (each for each in reversed(events) if each["objectRef"]["resource"] == "pods")
    assert newest["verb"] == "create"
    found: list[dict[str, Any]] = json.loads(newest.get("annotations", {}).get(FAILURE, "[]"))
    return found


SHARED = Taint(key="sku", value="gpu")
"""That of AKS's older documents, which does not tell vendors apart."""


@pytest.fixture(scope="module")
def shared(api: Api) -> Api:
    """With policies of their own for the namespace `shared`, where the nodes of both vendors have one taint."""
    for manifest in declared(taint=SHARED):
        own = {**manifest, "metadata": {"name": f"{manifest['metadata']['name']}-shared"}}
        if manifest["kind"] == BINDING:
            policy = f"{manifest['spec']['policyName']}-shared"
            own = only_in("shared", {**own, "spec": {**manifest["spec"], "policyName": policy}})
        assert api.create(own).accepted
    for vendor in GPU_VENDORS:
        asks = pod("asks", namespace="shared", containers=[container("c", {"limits": {vendor.whole: 1}})])
        wait_for("the policies are in force", partial(refused, api, asks))
    return api


def refused(api: Api, manifest: Mapping[str, Any]) -> bool:
    return not api.create(manifest, dry_run=True).accepted


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"])
def test_a_taint_of_both_vendors_is_tolerated_for_the_gpus_of_either(shared: Api, resource: str) -> None:
    asking = [container("train", {"limits": {resource: 1}})]
    sku = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    answer = shared.create(
        pod("good", namespace="shared", containers=asking, tolerations=[sku]), dry_run=True
    )
    assert answer.accepted, answer.message
    # Also where ExtendedResourceToleration adds a toleration: it adds that of another taint.
    answer = shared.create(pod("bad", namespace="shared", containers=asking), dry_run=True)
    assert "does not tolerate the taint sku=gpu:NoSchedule" in answer.message
    assert "Add to spec: tolerations: [{key: sku, operator: Exists, effect: NoSchedule}]" in answer.message
