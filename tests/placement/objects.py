# SPDX-License-Identifier: Apache-2.0
"""Objects that tests put before the API server, beside those of the tables: pods, owners, types of operators."""

from collections.abc import Mapping
from typing import Any

from components.placement_rules import Owner

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
GPU = {"limits": {"nvidia.com/gpu": 1}}
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
OPERATORS = (TRAINING_JOB, JOB_SET)


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


FROM_BEFORE = (
    pod("old", tolerations=[{"operator": "Exists"}]),
    deployment("old", tolerations=[TOLERATION]),
)
"""What was there before the policies."""
