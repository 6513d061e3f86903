# SPDX-License-Identifier: Apache-2.0
"""The policies on a real API server, beyond the tables: changes, debugging, many containers, types of operators."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from components.placement_rules import Owner
from tests.placement.api import Answer, Api
from tests.placement.conftest import api_server, declared, enforce, wait_for

pytestmark = pytest.mark.cluster

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
GPU = {"limits": {"nvidia.com/gpu": 1}}
MANY = 300
"""Containers in one pod: far above what a node would run."""

TRAINING_JOB = Owner(
    group="training.example.com",
    versions=("v1",),
    resource="trainingjobs",
    kind="TrainingJob",
    pod_specs=("spec.replicas{}.template.spec", "spec.launcher.spec"),
)
JOB_SET = Owner(
    group="training.example.com",
    versions=("v1",),
    resource="jobsets",
    kind="JobSet",
    pod_specs=("spec.jobs[].template.spec.template.spec",),
)


def pod(name: str, namespace: str = "work", **spec: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "main", "image": "registry.example/image"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": containers | spec,
    }


def container(name: str, resources: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "image": "registry.example/image", "resources": resources or {}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with (
        api_server(tmp_path_factory.mktemp("cluster"), plugin=True) as control_plane,
        Api(control_plane.kubeconfig) as api,
    ):
        # From the time before the policies.
        assert api.create(pod("old", tolerations=[{"operator": "Exists"}])).accepted
        assert api.create(deployment("old", tolerations=[TOLERATION])).accepted
        for owner in (TRAINING_JOB, JOB_SET):
            assert api.create(definition(owner)).accepted
        enforce(api, declared(owners=[TRAINING_JOB, JOB_SET]))
        wait_for(
            "the types of operators are served",
            lambda: api.serves("training.example.com/v1") == {"trainingjobs", "jobsets"},
        )
        yield api


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "work"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(name, **spec)["spec"]},
        },
    }


def definition(owner: Owner) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{owner.resource}.{owner.group}"},
        "spec": {
            "group": owner.group,
            "scope": "Namespaced",
            "names": {"plural": owner.resource, "kind": owner.kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            ],
        },
    }


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


def training_job(*, launcher: Any, worker: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if launcher is not None:
        spec["launcher"] = launcher
    if worker is not None:
        spec["replicas"] = {"worker": {"template": {"spec": worker}}}
    return {
        "apiVersion": "training.example.com/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "job", "namespace": "work"},
        "spec": spec,
    }


def test_a_warning_says_the_same_and_lets_the_object_in(api: Api) -> None:
    for manifest in declared(action="Warn"):
        if manifest["kind"] == "ValidatingAdmissionPolicyBinding":
            warns = {
                **manifest,
                "metadata": {"name": f"{manifest['metadata']['name']}-warn"},
                "spec": {
                    **manifest["spec"],
                    "matchResources": {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "platform"}}
                    },
                },
            }
            assert api.create(warns).accepted
    bad = pod("warned", namespace="platform", tolerations=[TOLERATION])

    def warned() -> Answer | None:
        answer = api.create(bad, dry_run=True)
        return answer if answer.warnings else None

    answer = wait_for("the bindings that warn are in force", warned)
    assert answer.accepted
    assert any("but no container asks for one: container main" in warning for warning in answer.warnings)
