# SPDX-License-Identifier: Apache-2.0
"""The local Pyroscope chart, installed by the real engine with the values of the stack."""

import json
import shutil
from typing import Any

import pytest
from lightkube import Client
from lightkube.models.core_v1 import NodeSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.core_v1 import ConfigMap, Endpoints, Node, Service

from components.pyroscope import RELEASE_NAME, selector
from components.pyroscope_values import microservices, single
from components.settings.pyroscope import Pyroscope as Settings
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Engine
from localcloud.kube.watching import client

pytestmark = [pytest.mark.engine, pytest.mark.cluster]

PROJECT = "name: chart\nruntime: python\n"
PROGRAM = """
import json, pathlib, pulumi_kubernetes as kubernetes
here = pathlib.Path(__file__).parent
kubernetes.helm.v3.Release("chart", name="{name}", chart=str(here / "chart"), namespace="gadget", create_namespace=True,
    timeout=60, values=json.loads((here / "values.json").read_text()))
kubernetes.helm.v3.Release("large", name="{name}", chart=str(here / "chart"), namespace="large", create_namespace=True,
    timeout=60, values=json.loads((here / "large.json").read_text()))
"""


@pytest.fixture(scope="module")
def installed(local_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder = tmp_path_factory.mktemp("program")
    (folder / "Pulumi.yaml").write_text(PROJECT)
    (folder / "__main__.py").write_text(PROGRAM.format(name=RELEASE_NAME))
    (folder / "values.json").write_text(json.dumps(single(Settings.model_validate({"diskGib": 0}))))
    large = Settings.model_validate(
        {"size": "microservices", "diskGib": 0, "storage": {"accountName": "profiles"}}
    )
    (folder / "large.json").write_text(json.dumps(microservices(large, "client")))
    shutil.copytree(CHECKOUT / "localcloud" / "charts" / "pyroscope", folder / "chart")
    kubernetes = client(local_cloud.endpoints.kubeconfig)
    _add_node(kubernetes)
    engine = Engine(cloud=local_cloud, directory=folder)
    engine.create()
    engine.up()
    return kubernetes


def test_it_makes_the_objects_that_the_stack_relies_on(installed: Client) -> None:
    stateful_set = installed.get(StatefulSet, "pyroscope", namespace="gadget")
    assert stateful_set.status
    assert stateful_set.status.readyReplicas == 1
    service = installed.get(Service, "pyroscope", namespace="gadget")
    assert service.spec
    assert [port.port for port in service.spec.ports or []] == [4040]


def test_the_configuration_is_that_of_the_values(installed: Client) -> None:
    config = installed.get(ConfigMap, "pyroscope-config", namespace="gadget")
    assert "backend: filesystem" in (config.data or {})["config.yaml"]


def test_the_selector_of_the_load_balancer_finds_its_pod(installed: Client, waiting: Any) -> None:
    spec = ServiceSpec(selector=dict(selector("all")), ports=[ServicePort(port=4040)])
    installed.create(Service(metadata=ObjectMeta(name="like-ours", namespace="gadget"), spec=spec))

    def addresses() -> list[str]:
        found = [each for each in installed.list(Endpoints, namespace="gadget") if _name(each) == "like-ours"]
        return [
            address.ip for each in found for part in each.subsets or [] for address in part.addresses or []
        ]

    assert len(waiting("the pod behind the Service", addresses)) == 1


def test_microservices_are_separate_workloads_with_the_identity(installed: Client) -> None:
    stateful = {_called(one): one for one in installed.list(StatefulSet, namespace="large")}
    deployed = {_called(one): one for one in installed.list(Deployment, namespace="large")}
    assert set(stateful) == {"pyroscope-ingester", "pyroscope-store-gateway", "pyroscope-compactor"}
    assert set(deployed) == {
        "pyroscope-distributor",
        "pyroscope-querier",
        "pyroscope-query-frontend",
        "pyroscope-query-scheduler",
    }
    workloads: list[StatefulSet | Deployment] = [*stateful.values(), *deployed.values()]
    for workload in workloads:
        assert workload.spec
        template = workload.spec.template
        assert template.metadata
        assert (template.metadata.labels or {})["azure.workload.identity/use"] == "true"
        assert template.spec
        assert template.spec.serviceAccountName == "pyroscope"
    config = installed.get(ConfigMap, "pyroscope-config", namespace="large")
    assert "account_name: profiles" in (config.data or {})["config.yaml"]


def _called(workload: StatefulSet | Deployment) -> str | None:
    return workload.metadata.name if workload.metadata else None


def _add_node(kubernetes: Client) -> None:
    kubernetes.create(Node(metadata=ObjectMeta(name="node"), spec=NodeSpec()))
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    kubernetes.patch(Node.Status, "node", {"status": {"capacity": capacity, "allocatable": capacity}})


def _name(endpoints: Endpoints) -> str | None:
    return endpoints.metadata.name if endpoints.metadata else None
