# SPDX-License-Identifier: Apache-2.0
"""The lives of the example stacks `staging` and `prod`, one after the other on one local cloud, with the real engine.

The tests run in the order in which they stand, first all of one stack, then all of the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import Client
from lightkube.models.core_v1 import Container, PodSpec, ResourceRequirements, Toleration
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet, Deployment, StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Node, Pod, Service, ServiceAccount
from lightkube.resources.storage_v1 import StorageClass

from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Engine
from localcloud.kube.karpenter_crds import NODE_POOL
from localcloud.kube.watching import client
from tests.engine.verifying import verified
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.engine, pytest.mark.cluster]

AGENT_POOL = "azure-native:containerservice:AgentPool"
MIXED = {
    "name": "mixed",
    "vmSize": "Standard_NC24ads_A100_v4",
    "count": 1,
    "mig": {"profile": "3g", "strategy": "mixed"},
}

GADGET = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "additionalEnv": {"HTTPS_PROXY": "http://proxy:3128"},
}


@pytest.fixture(scope="module")
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the stack that the test names, with a cluster that may be destroyed.

    `staging` has the other way to offer slices beside its own, a pool that is cut with the strategy `mixed`; `prod` has
    settings of the extension.
    """
    name = f"Pulumi.{request.param}.yaml"
    values = yaml.safe_load((CHECKOUT / name).read_text())
    values["config"]["gpuheap:cluster"]["protect"] = False
    if request.param == "staging":
        values["config"]["gpuheap:gpuPools"].append(MIXED)
    else:
        values["config"]["gpuheap:inspektorGadget"] = GADGET
    file = tmp_path_factory.mktemp("config") / name
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.fixture(scope="module")
def engine(local_cloud: LocalCloud, config: Path) -> Iterator[Engine]:
    engine = Engine(cloud=local_cloud, stack=config.name.split(".")[1], config_file=config)
    engine.create()
    engine.up()
    yield engine
    if Store(local_cloud.state / "store.db").resources():  # a test failed before the last one
        engine.destroy()


@pytest.fixture
def store(local_cloud: LocalCloud) -> Store:
    return Store(local_cloud.state / "store.db")


@pytest.fixture
def kubernetes(local_cloud: LocalCloud) -> Client:
    return client(local_cloud.endpoints.kubeconfig)


staging = pytest.mark.parametrize("config", ["staging"], indirect=True, scope="module")
prod = pytest.mark.parametrize("config", ["prod"], indirect=True, scope="module")


def changed(config: Path, engine: Engine, change: Callable[[Any], None]) -> dict[str, dict[str, Any]]:
    """What the preview of a changed configuration wants to do: every step but `same`, by kind and operation."""
    unchanged = config.read_text()
    values = yaml.safe_load(unchanged)
    change(values["config"])
    config.write_text(yaml.safe_dump(values))
    try:
        steps = engine.preview()["steps"]
    finally:
        config.write_text(unchanged)
    return {
        f"{step['op']} {step['urn'].rpartition('::')[2]}": step.get("detailedDiff") or {}
        for step in steps
        if step["op"] != "same"
    }


@staging
def test_each_kind_of_pool_offers_what_it_says(engine: Engine, store: Store, kubernetes: Client) -> None:
    pools = {pool.name: pool.outputs for pool in store.resources(token=AGENT_POOL)}
    assert set(pools) == {"train", "share", "mixed"}
    assert (pools["train"]["minCount"], pools["train"]["maxCount"]) == (0, 2)
    assert gpus_of(kubernetes, "share") == {"nvidia.com/gpu": "7"}, "one A100 cut into seven"
    assert gpus_of(kubernetes, "mixed") == {"nvidia.com/mig-3g.40gb": "2"}, "one A100 cut into two"
    assert kubernetes.get(StorageClass, "local-nvme").provisioner == "localdisk.csi.acstor.io"
    assert engine.outputs()["agentDaemonSet"]


def gpus_of(kubernetes: Client, pool: str) -> dict[str, str]:
    """What the one node of a pool offers of its GPUs."""
    (node,) = kubernetes.list(Node, labels={"agentpool": pool})
    offered = (node.status and node.status.allocatable) or {}
    return {name: count for name, count in offered.items() if name.startswith("nvidia.com/")}


@staging
def test_each_pools_readiness_asked_for_what_its_nodes_offer(engine: Engine, kubernetes: Client) -> None:
    jobs = {str(job.metadata and job.metadata.name): job for job in kubernetes.list(Job, namespace="*")}
    assert {name: gpu_asked(job) for name, job in jobs.items()} == {
        "share": "nvidia.com/gpu",
        "mixed": "nvidia.com/mig-3g.40gb",
    }
    assert all(job.status and job.status.succeeded == 1 for job in jobs.values())


def gpu_asked(job: Job) -> str:
    assert job.spec and job.spec.template.spec
    resources = job.spec.template.spec.containers[0].resources
    (name,) = (name for name in (resources and resources.limits) or {} if "/" in name)
    return name


@staging
def test_both_maintenance_windows_are_there(engine: Engine, store: Store) -> None:
    windows = store.resources(token="azure-native:containerservice:MaintenanceConfiguration")
    assert {window.name for window in windows} == {
        "aksManagedAutoUpgradeSchedule",
        "aksManagedNodeOSUpgradeSchedule",
    }


@staging
def test_staging_does_not_drift(engine: Engine) -> None:
    engine.refresh(expect_no_changes=True)


@staging
def test_a_property_that_a_pool_keeps_for_life_replaces_it_and_the_preview_says_so(
    engine: Engine, config: Path
) -> None:
    def managed_disk(values: Any) -> None:
        values["gpuheap:gpuPools"][0]["osDisk"] = "Managed"

    steps = changed(config, engine, managed_disk)
    assert list(steps) == ["replace gpu-pool-train"]
    (diff,) = steps["replace gpu-pool-train"].items()
    assert (diff[0], diff[1]["kind"]) == ("osDiskType", "add-replace")


@staging
def test_staging_leaves_nothing(engine: Engine, store: Store, kubernetes: Client) -> None:
    engine.destroy()
    assert store.resources() == []
    assert not list(kubernetes.list(Node))


@prod
def test_a_waiting_pod_gets_a_node_of_its_pool_and_the_agent_follows(
    engine: Engine, kubernetes: Client
) -> None:
    namespace, name = engine.outputs()["agentDaemonSet"].split("/")
    assert not list(kubernetes.list(Node, labels={"karpenter.sh/nodepool": "batch"}))
    limits: Any = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    tolerated = ("nvidia.com/gpu", "kubernetes.azure.com/scalesetpriority")
    kubernetes.create(
        Pod(
            metadata=ObjectMeta(name="training", namespace="default"),
            spec=PodSpec(
                containers=[
                    Container(name="train", image="train", resources=ResourceRequirements(limits=limits))
                ],
                nodeSelector={"workload": "batch"},
                tolerations=[
                    Toleration(key=key, operator="Exists", effect="NoSchedule") for key in tolerated
                ],
            ),
        )
    )

    def followed() -> bool:
        status = kubernetes.get(DaemonSet, name, namespace=namespace).status
        return status is not None and status.numberReady == 1

    wait_for("an agent on the node that the pod brought", followed)
    (node,) = kubernetes.list(Node, labels={"karpenter.sh/nodepool": "batch"})
    assert node.metadata and node.metadata.labels
    assert node.metadata.labels["node.kubernetes.io/instance-type"] == "Standard_NC24ads_A100_v4"
    kubernetes.delete(Pod, "training", namespace="default")


@prod
def test_a_stack_that_outgrows_one_machine_goes_on_with_microservices(
    engine: Engine, config: Path, kubernetes: Client
) -> None:
    values = yaml.safe_load(config.read_text())
    small = {name: {"cpu": "50m", "memoryGib": 0.25} for name in ("ingester", "store-gateway", "compactor")}
    values["config"]["gpuheap:pyroscope"] |= {
        "size": "microservices",
        "storage": {"accountName": "gpuheapprofiles"},
        "components": small,
    }
    values["config"]["gpuheap:grafana"] |= {"publicAccess": False, "privateAccess": {}}
    values["config"]["gpuheap:gpuPools"][0]["autoscale"]["max"] = 6
    del values["config"]["gpuheap:inspektorGadget"]
    config.write_text(yaml.safe_dump(values))
    assert gadgets_pods(kubernetes) == GADGET
    before = kubernetes.get(NODE_POOL, "train")
    engine.up()
    after = kubernetes.get(NODE_POOL, "train")
    assert after.spec["limits"]["nvidia.com/gpu"] == "48", "six nodes with eight GPUs each"
    assert after.metadata and before.metadata
    assert after.metadata.uid == before.metadata.uid, "a higher bound changes it in place"
    assert gadgets_pods(kubernetes) == {"nodeSelector": {}, "additionalEnv": {}}, (
        "what is said no longer is gone"
    )
    stateful = {one.metadata.name for one in kubernetes.list(StatefulSet, namespace="gadget") if one.metadata}
    assert stateful == {"pyroscope-ingester", "pyroscope-store-gateway", "pyroscope-compactor"}
    deployments = {
        one.metadata.name for one in kubernetes.list(Deployment, namespace="gadget") if one.metadata
    }
    assert deployments == {
        f"pyroscope-{name}" for name in ("distributor", "querier", "query-frontend", "query-scheduler")
    }
    for name, component in (("pyroscope", "distributor"), ("pyroscope-private-link", "query-frontend")):
        spec = kubernetes.get(Service, name, namespace="gadget").spec
        assert spec and spec.selector
        assert spec.selector["app.kubernetes.io/component"] == component


def gadgets_pods(kubernetes: Client) -> dict[str, dict[str, str]]:
    """What the pods of Azure's extension have beside what it gives them itself."""
    spec = kubernetes.get(DaemonSet, "gadget", namespace="gadget").spec
    assert spec and spec.template.spec
    selector = {
        key: text
        for key, text in (spec.template.spec.nodeSelector or {}).items()
        if key != "kubernetes.io/os"
    }
    variables = spec.template.spec.containers[0].env or []
    return {"nodeSelector": selector, "additionalEnv": {one.name: one.value or "" for one in variables}}


@prod
def test_its_pods_reach_their_blobs_by_the_identity_of_their_service_account(
    engine: Engine, store: Store, kubernetes: Client
) -> None:
    (trust,) = store.resources(token="azure-native:managedidentity:FederatedIdentityCredential")
    identity = store.resource(trust.id.rpartition("/federatedIdentityCredentials/")[0])
    (cluster,) = store.resources(token="azure-native:containerservice:ManagedCluster")
    (container,) = store.resources(token="azure-native:storage:BlobContainer")
    assert identity is not None
    account = kubernetes.get(ServiceAccount, "pyroscope", namespace="gadget").metadata
    assert account and account.annotations
    assert account.annotations["azure.workload.identity/client-id"] == identity.outputs["clientId"]
    assert trust.inputs["subject"] == "system:serviceaccount:gadget:pyroscope"
    assert trust.inputs["issuer"] == cluster.outputs["oidcIssuerProfile"]["issuerURL"]
    roles = {
        role.outputs["scope"]
        for role in store.resources(token="azure-native:authorization:RoleAssignment")
        if role.outputs["principalId"] == identity.outputs["principalId"]
    }
    assert roles == {container.id}, "the blobs of its container, and nothing else"
    for pod in kubernetes.list(Pod, namespace="gadget", labels={"app.kubernetes.io/name": "pyroscope"}):
        assert pod.spec and pod.metadata and pod.metadata.labels
        assert pod.spec.serviceAccountName == "pyroscope"
        assert pod.metadata.labels["azure.workload.identity/use"] == "true"
    (told,) = kubernetes.list(ConfigMap, namespace="gadget", labels={"app.kubernetes.io/name": "pyroscope"})
    azure = yaml.safe_load((told.data or {})["config.yaml"])["storage"]["azure"]
    assert azure == {"account_name": "gpuheapprofiles", "container_name": "pyroscope"}, "a name, and no key"


@prod
def test_a_private_grafana_is_reached_by_its_endpoint_and_shows_pyroscope(
    engine: Engine, store: Store, local_cloud: LocalCloud
) -> None:
    (workspace,) = store.resources(token="azure-native:dashboard:Grafana")
    assert workspace.outputs["properties"]["publicNetworkAccess"] == "Disabled"
    (endpoint,) = store.resources(token="azure-native:network:PrivateEndpoint")
    (link,) = store.resources(token="azure-native:privatedns:VirtualNetworkLink")
    assert endpoint.inputs["subnet"]["id"].startswith(link.inputs["virtualNetwork"]["id"] + "/subnets/")
    _, rows = verified(local_cloud, "prod")
    for check in (
        "Pyroscope runs",
        "Pyroscope answers to its name in the cluster",
        "Grafana reaches Pyroscope",
        "A private endpoint leads to Grafana",
        "Dashboard's address answers",
    ):
        assert rows[check]["outcome"] == "passed", rows[check]


@prod
def test_a_private_way_that_somebody_broke_is_found_by_refresh_and_mended_by_up(
    engine: Engine, store: Store, local_cloud: LocalCloud
) -> None:
    def rejected(before: Resource) -> Resource:
        (connection,) = before.outputs["privateLinkServiceConnections"]
        state = {"status": "Rejected", "description": "by somebody", "actionsRequired": "None"}
        connections = [{**connection, "privateLinkServiceConnectionState": state}]
        return replace(before, outputs={**before.outputs, "privateLinkServiceConnections": connections})

    (endpoint,) = store.resources(token="azure-native:network:PrivateEndpoint")
    (link,) = store.resources(token="azure-native:privatedns:VirtualNetworkLink")
    store.change_resource(endpoint.id, rejected, actor="somebody")
    store.delete_resource(link.id, actor="somebody")
    assert "was not looked at" in engine.refresh()
    before = len(store.events())
    engine.up()
    changes = [(event.verb, event.id.rpartition("/")[2]) for event in store.events()[before:]]
    # The record lies in the endpoint, which alone is made anew; what is in Grafana is left alone.
    name = endpoint.name
    assert sorted(changes) == sorted(
        [
            ("create", link.name),
            ("delete", "default"),
            ("delete", name),
            ("create", name),
            ("create", "default"),
        ]
    )
    _, rows = verified(local_cloud, "prod")
    assert rows["A private endpoint leads to Grafana"]["outcome"] == "passed"


@prod
def test_prod_does_not_drift(engine: Engine) -> None:
    engine.refresh(expect_no_changes=True)


@prod
def test_prod_leaves_nothing(engine: Engine, store: Store, kubernetes: Client) -> None:
    engine.destroy()
    assert store.resources() == []
    assert not list(kubernetes.list(Node)), "the nodes that pods brought go with their pools"
