# SPDX-License-Identifier: Apache-2.0
"""Real control planes that enforce the declared policies: one with ExtendedResourceToleration, one without.

The first is all tests' of this folder: it has types of operators, and objects from before the policies.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pulumi_kubernetes as kubernetes
import pytest

from components.gpu_vendors import GPU_VENDORS, Taint
from components.placement import Action, Placement, PlacementArgs
from components.placement_rules import Owner
from localcloud.kube.control_plane import ControlPlane
from localcloud.toolchain import resolve
from tests.components.recorder import record
from tests.placement import objects
from tests.placement.api import Api
from tests.waiting import wait_for

EXEMPT = ("platform", "warned", "audited", "shared")
NAMESPACES = ("work", "gpuheap", "gadget", "gatekeeper-system", "kube-system-tools", *EXEMPT)
AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "namespaces": ["audited"]}, {"level": "None"}],
}
ADMISSION_API = "kubernetes:admissionregistration.k8s.io/v1:"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"

Found = TypeVar("Found")


def declared(
    action: Action = "Deny", owners: Sequence[Owner] = (), taint: Taint | None = None
) -> list[dict[str, Any]]:
    """The manifests that the component declares; with `taint` the nodes of all vendors have the same."""

    def program() -> None:
        args = PlacementArgs(
            taints={vendor: taint or vendor.taint for vendor in GPU_VENDORS},
            provider=kubernetes.Provider("cluster"),
            depends_on=[],
            action=action,
            exempt_namespaces=EXEMPT,
            custom_owners=owners,
        )
        Placement("placement", args)

    recording = record(program)
    return [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, **resource.inputs}
        for kind in (POLICY, BINDING)
        for resource in recording.of_type(ADMISSION_API + kind)
    ]


def enforce(api: Api, manifests: Sequence[Mapping[str, Any]]) -> None:
    """Put the policies into the cluster, and wait until they are in force: the API server reads them a moment later."""
    for manifest in manifests:
        answer = api.create(manifest)
        assert answer.accepted, answer.message
    for vendor in GPU_VENDORS:
        toleration = {"key": vendor.taint.key, "operator": "Exists"}
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "namespace": "work"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": [toleration]},
        }
        wait_for(f"the policy for {vendor.name} is in force", partial(_answers, api, probe))


def _answers(api: Api, probe: Mapping[str, Any]) -> bool:
    answer = api.create(probe, dry_run=True)
    return not answer.accepted or bool(answer.warnings)


@contextmanager
def api_server(state: Path, *, plugin: bool) -> Iterator[ControlPlane]:
    control_plane = ControlPlane(
        resolve().control_plane,
        state,
        extended_resource_toleration=plugin,
        audit_policy=AUDIT_POLICY,
    )
    control_plane.start()
    try:
        with Api(control_plane.kubeconfig) as api:
            for name in NAMESPACES:
                api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            wait_for("accounts of the namespaces", lambda: _have_accounts(api))
        yield control_plane
    finally:
        control_plane.stop()


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A cluster whose API server holds requests to the rules."""

    api: Api
    control_plane: ControlPlane


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With ExtendedResourceToleration."""
    with (
        api_server(tmp_path_factory.mktemp("cluster"), plugin=True) as control_plane,
        Api(control_plane.kubeconfig) as api,
    ):
        for manifest in (*objects.FROM_BEFORE, *map(objects.definition, objects.OPERATORS)):
            answer = api.create(manifest)
            assert answer.accepted, answer.message
        enforce(api, declared(owners=objects.OPERATORS))
        wait_for(
            "the types of operators are served",
            lambda: api.serves("training.example.com/v1") == {"trainingjobs", "jobsets"},
        )
        yield Guarded(api=api, control_plane=control_plane)


def _have_accounts(api: Api) -> bool:
    found = api.get("/api/v1/serviceaccounts")["items"]
    have = {each["metadata"]["namespace"] for each in found if each["metadata"]["name"] == "default"}
    return have >= {*NAMESPACES, "kube-system"}
