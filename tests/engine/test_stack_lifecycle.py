# SPDX-License-Identifier: Apache-2.0
"""One life of the dev stack on a local cloud: up, no difference, a change, refresh, destroy; all with the real engine.

The tests of this file share one deployment and run in the order in which they stand.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import Client
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Namespace, Node, Service

from localcloud.azure.records import Fault
from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Engine
from localcloud.kube.watching import client
from tests.engine.verifying import verified

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.engine, pytest.mark.cluster]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "Pulumi.dev.yaml"
    file.write_text((CHECKOUT / "Pulumi.dev.yaml").read_text())
    return file


@pytest.fixture(scope="module")
def engine(local_cloud: LocalCloud, config: Path) -> Engine:
    engine = Engine(cloud=local_cloud, config_file=config)
    engine.create()
    engine.up()
    return engine


@pytest.fixture(scope="module")
def store(local_cloud: LocalCloud) -> Store:
    return Store(local_cloud.state / "store.db")


@pytest.fixture(scope="module")
def kubernetes(local_cloud: LocalCloud) -> Client:
    return client(local_cloud.endpoints.kubeconfig)


def test_up_declares_every_part_of_the_published_procedure(
    engine: Engine, store: Store, kubernetes: Client
) -> None:
    kinds = {resource.token for resource in store.resources()}
    assert kinds >= {
        "azure-native:containerservice:ManagedCluster",
        "azure-native:containerservice:AgentPool",
        "azure-native:monitor:AzureMonitorWorkspace",
        "azure-native:monitor:DataCollectionEndpoint",
        "azure-native:monitor:DataCollectionRule",
        "azure-native:monitor:DataCollectionRuleAssociation",
        "azure-native:kubernetesconfiguration:Extension",
        "azure-native:dashboard:Grafana",
        "azure-native:dashboard:ManagedPrivateEndpoint",
    }
    assert kubernetes.get(Service, "pyroscope", namespace="gadget")
    namespace, name = engine.outputs()["agentDaemonSet"].split("/")
    agent = kubernetes.get(DaemonSet, name, namespace=namespace)
    assert agent.status and agent.status.numberReady, "the agent must reach the tainted GPU nodes"


def test_another_up_would_change_nothing_and_the_policy_pack_refuses_nothing(engine: Engine) -> None:
    engine.preview(expect_no_changes=True, policy_pack=CHECKOUT / "policies")


def test_verify_finds_nothing_wrong_with_what_up_has_made(engine: Engine, local_cloud: LocalCloud) -> None:
    code, rows = verified(local_cloud, "dev")
    outcomes = {check: row["outcome"] for check, row in rows.items() if row["outcome"] != "passed"}
    assert outcomes == {
        "GPU driver answers in every pool": "skipped",  # no container runs here
        "A private endpoint leads to Grafana": "skipped",  # the workspace is public
        "A profile is newer than a minute": "skipped",  # no process holds GPU memory
    }, rows
    assert code == 0


def test_verify_names_each_thing_that_is_broken_and_the_way_out(
    engine: Engine, local_cloud: LocalCloud, store: Store, kubernetes: Client
) -> None:
    (workspace,) = store.resources(token="azure-native:dashboard:Grafana")
    (dashboard,) = store.grafana_objects(workspace.id, "dashboards")
    name = engine.outputs()["privateLinkServiceId"].rpartition("/")[2]
    gpu_nodes = [
        node.metadata.name
        for node in kubernetes.list(Node)
        if node.metadata and node.metadata.name and node.spec and node.spec.taints
    ]
    offer(kubernetes, gpu_nodes, "0")
    store.delete_grafana_object(dashboard, actor="test")
    store.add_fault(
        Fault(method="GET", path=f"/privateLinkServices/{name}$", status=403, code="AuthorizationFailed")
    )
    try:
        code, rows = verified(local_cloud, "dev")
    finally:
        store.put_grafana_object(dashboard, actor="test")
        offer(kubernetes, gpu_nodes, "1")
    failed = {check: row["seen"] for check, row in rows.items() if row["outcome"] == "failed"}
    assert set(failed) == {
        "GPU nodes are tainted and offer their GPUs",
        "Private Link Service exists",
        "Dashboard is there",
        "Dashboard's address answers",
    }
    assert code == 1
    assert "not allowed" in failed["Private Link Service exists"]
    assert "--rights azure" in rows["Private Link Service exists"]["remedy"]
    assert all(rows[check]["remedy"] for check in failed)


def offer(kubernetes: Client, nodes: list[str], gpus: str) -> None:
    for node in nodes:
        kubernetes.patch(Node.Status, node, {"status": {"allocatable": {"nvidia.com/gpu": gpus}}})


def test_refresh_finds_no_drift(engine: Engine) -> None:
    engine.refresh(expect_no_changes=True)


def test_a_changed_setting_is_the_only_change_of_the_preview(engine: Engine, config: Path) -> None:
    unchanged = config.read_text()
    changed = yaml.safe_load(unchanged)
    changed["config"]["gpuheap:gpuPools"][0]["count"] += 1
    config.write_text(yaml.safe_dump(changed))
    try:
        shown = engine.preview_diff()
    finally:
        config.write_text(unchanged)
    # The pool's readiness is checked again: its nodes are not those that were looked at.
    assert sorted(re.findall(r"^ *([~+-]+) ?(\S+): \(", shown, re.MULTILINE)) == [
        ("+-", "kubernetes:batch/v1:Job"),
        ("~", "azure-native:containerservice:AgentPool"),
    ], shown
    assert "count: 1 => 2" in " ".join(shown.split())


def test_no_secret_stands_in_the_state(engine: Engine, local_cloud: LocalCloud) -> None:
    state = json.dumps(engine.state())
    kubeconfig: dict[str, Any] = yaml.safe_load(Path(local_cloud.endpoints.kubeconfig).read_text())
    for user in kubeconfig["users"]:
        for value in user["user"].values():
            assert str(value) not in state, "the cluster's credential must be encrypted in the state"
    assert local_cloud.endpoints.identity_header not in state


def test_destroy_removes_everything_in_order(engine: Engine, store: Store, kubernetes: Client) -> None:
    before = len(store.events())
    engine.destroy()
    assert store.resources() == [], "destroy must leave the subscription empty"
    assert not list(kubernetes.list(Node)), "the nodes go with their pools"
    remaining = {namespace.metadata.name for namespace in kubernetes.list(Namespace) if namespace.metadata}
    assert remaining.isdisjoint({"gadget", "gpuheap"})
    deleted = [event for event in store.events()[before:] if event.verb == "delete"]
    order = [_place(event.id) for event in deleted]
    ranks = [rank for rank in order if rank is not None]
    assert ranks == sorted(ranks), f"dashboards, endpoint, Service, extension, cluster; was {deleted}"
    assert set(ranks) == set(range(len(_ORDER)))


_ORDER = (
    "/dashboards/",
    "/managedprivateendpoints/",
    "/privatelinkservices/",
    "/extensions/",
    "/managedclusters/",
)


def _place(resource_id: str) -> int | None:
    """The rank of a deleted resource in the order that the design asks for; None for those it does not speak of."""
    kind = resource_id.lower().rstrip("/").rpartition("/")[0]
    return next((rank for rank, part in enumerate(_ORDER) if f"{kind}/".endswith(part)), None)
