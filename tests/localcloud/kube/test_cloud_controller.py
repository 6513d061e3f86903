# SPDX-License-Identifier: Apache-2.0
"""LoadBalancer Services on the real API server, and what appears in simulated Azure for them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError, Client
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Service

from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.kube.cloud_controller import CloudController
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.watching import client

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
CLUSTER = Resource(
    id=f"{SUBSCRIPTION}/resourceGroups/apps/providers/Microsoft.ContainerService/managedClusters/aks",
    token="azure-native:containerservice:ManagedCluster",
    outputs={"location": "westeurope", "nodeResourceGroup": "MC_apps_aks_westeurope"},
)
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
PREFIX = "service.beta.kubernetes.io/azure-"
INTERNAL = {f"{PREFIX}load-balancer-internal": "true"}


def pls_id(name: str, group: str = "MC_apps_aks_westeurope") -> str:
    return f"{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/privateLinkServices/{name}"


def private_link(name: str, **more: str) -> dict[str, str]:
    settings = {
        "pls-create": "true",
        "pls-name": name,
        **{f"pls-{key}": value for key, value in more.items()},
    }
    return {**INTERNAL, **{f"{PREFIX}{key}": value for key, value in settings.items()}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db")
    store.create_resource(CLUSTER, actor="test")
    yield store
    store.close()


@pytest.fixture
def controller(cluster: Client, control_plane: ControlPlane, store: Store) -> Iterator[CloudController]:
    controller = CloudController(client(control_plane.kubeconfig), store)
    controller.start()
    yield controller
    # No Service may wait for a controller that is gone, nor wake it.
    for service in cluster.list(Service, namespace="*"):
        if service.metadata and service.spec and service.spec.type == "LoadBalancer":
            cluster.delete(Service, str(service.metadata.name), namespace=service.metadata.namespace)
    controller.stop()


@pytest.fixture
def balance(cluster: Client, namespace: str) -> Callable[..., None]:
    """Makes a Service of type LoadBalancer."""

    def make(name: str, annotations: dict[str, str]) -> None:
        cluster.create(
            Service(
                metadata=ObjectMeta(name=name, namespace=namespace, annotations=annotations),
                spec=ServiceSpec(type="LoadBalancer", selector={"app": "x"}, ports=[ServicePort(port=4040)]),
            )
        )

    return make


def address(cluster: Client, namespace: str, name: str) -> str | None:
    status = cluster.get(Service, name, namespace=namespace).status
    ingress = (status and status.loadBalancer and status.loadBalancer.ingress) or []
    return ingress[0].ip if ingress else None


def warnings(cluster: Client, namespace: str, name: str) -> list[str]:
    """What Events of a Service warn of."""
    events = cluster.list(Event, namespace=namespace, fields={"involvedObject.name": name})
    return [str(event.message) for event in events if event.type == "Warning"]


def gone(cluster: Client, namespace: str, name: str) -> bool:
    try:
        cluster.get(Service, name, namespace=namespace)
    except ApiError as error:
        return bool(error.status.code == 404)
    return False


@pytest.mark.usefixtures("controller")
class TestCloudController:
    def test_the_private_link_service_is_as_annotated_and_there_before_the_address(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        settings = {"resource-group": "apps", "visibility": "*", "proxy-protocol": "false"}
        balance("web", private_link("web-pls", **settings))
        seen: list[bool] = []
        for _, service in cluster.watch(Service, namespace=namespace, server_timeout=60):
            assert service.metadata
            if service.status and service.status.loadBalancer and service.status.loadBalancer.ingress:
                assert FINALIZER in (service.metadata.finalizers or []), "what cleans up comes first"
                seen.append(store.resource(pls_id("web-pls", "apps")) is not None)
                break
        assert seen == [True]
        made = store.resource(pls_id("web-pls", "apps"))
        assert made
        assert made.id == pls_id("web-pls", "apps")
        assert made.token == "azure-native:network:PrivateLinkService"
        assert made.outputs["visibility"] == {"subscriptions": ["*"]}
        assert made.outputs["autoApproval"] == {"subscriptions": []}
        assert made.outputs["enableProxyProtocol"] is False
        assert made.outputs["provisioningState"] == "Succeeded"
        assert made.outputs["privateEndpointConnections"] == []

    def test_without_a_resource_group_it_is_in_that_of_the_nodes(
        self, store: Store, balance: Callable[..., None], waiting: Callable[..., Any]
    ) -> None:
        balance("web", private_link("web-pls"))
        waiting("the Private Link Service", lambda: store.resource(pls_id("web-pls")))

    def test_connections_go_first_then_the_private_link_service_then_the_service(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("web", private_link("web-pls"))
        waiting("an address", lambda: address(cluster, namespace, "web"))
        connection = {"id": f"{pls_id('web-pls')}/privateEndpointConnections/grafana.1", "name": "grafana.1"}
        store.change_resource(
            pls_id("web-pls"),
            lambda old: replace(old, outputs={**old.outputs, "privateEndpointConnections": [connection]}),
            actor="test",
        )
        cluster.delete(Service, "web", namespace=namespace)
        waiting("the Service gone", lambda: gone(cluster, namespace, "web"))
        deleted = [event.id for event in store.events() if event.verb == "delete"]
        assert deleted == [connection["id"], pls_id("web-pls")]

    def test_a_plain_load_balancer_gets_an_address_and_nothing_in_azure(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("inside", INTERNAL)
        balance("outside", {})
        assert waiting("an address", lambda: address(cluster, namespace, "inside")).startswith("10.224.")
        assert waiting("an address", lambda: address(cluster, namespace, "outside")).startswith("203.0.113.")
        assert [resource.token for resource in store.resources()] == [CLUSTER.token]

    def test_the_name_of_another_service_is_refused_until_it_is_free(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("z-first", private_link("shared"))
        waiting("an address", lambda: address(cluster, namespace, "z-first"))
        balance("a-second", private_link("shared"))
        (message,) = waiting("a warning", lambda: warnings(cluster, namespace, "a-second"))
        assert f"{pls_id('shared')} belongs to {namespace}/z-first" in message
        assert address(cluster, namespace, "a-second") is None
        cluster.delete(Service, "z-first", namespace=namespace)
        waiting("an address for the second", lambda: address(cluster, namespace, "a-second"))
        assert len(warnings(cluster, namespace, "a-second")) == 1, "the same reason is said once"

    def test_a_public_service_that_wants_a_private_link_service_gets_neither_it_nor_an_address(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("web", {f"{PREFIX}pls-create": "true", f"{PREFIX}pls-name": "web-pls"})
        (message,) = waiting("a warning", lambda: warnings(cluster, namespace, "web"))
        assert "must be internal" in message
        assert address(cluster, namespace, "web") is None
        assert store.resource(pls_id("web-pls")) is None
        cluster.patch(Service, "web", {"metadata": {"annotations": INTERNAL}}, namespace=namespace)
        waiting("an address once it is internal", lambda: address(cluster, namespace, "web"))
        assert store.resource(pls_id("web-pls"))

    def test_a_private_link_service_cannot_be_renamed(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("web", private_link("old"))
        waiting("an address", lambda: address(cluster, namespace, "web"))
        change = {"metadata": {"annotations": {f"{PREFIX}pls-name": "new"}}}
        cluster.patch(Service, "web", change, namespace=namespace)
        (message,) = waiting("a warning", lambda: warnings(cluster, namespace, "web"))
        assert f"{pls_id('old')} cannot become {pls_id('new')}" in message
        assert store.resource(pls_id("old"))
        assert store.resource(pls_id("new")) is None

    def test_without_its_annotation_it_stays_until_the_service_becomes_public(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("web", private_link("web-pls"))
        before = waiting("an address", lambda: address(cluster, namespace, "web"))
        off = {"metadata": {"annotations": {f"{PREFIX}pls-create": "false"}}}
        cluster.patch(Service, "web", off, namespace=namespace)
        balance("later", INTERNAL)
        waiting("a later Service served", lambda: address(cluster, namespace, "later"))
        assert store.resource(pls_id("web-pls")), "the real controller leaves it"
        assert address(cluster, namespace, "web") == before
        public = {"metadata": {"annotations": {f"{PREFIX}load-balancer-internal": "false"}}}
        cluster.patch(Service, "web", public, namespace=namespace)
        waiting(
            "a public address",
            lambda: str(address(cluster, namespace, "web")).startswith("203.0.113."),
        )
        assert store.resource(pls_id("web-pls")) is None

    def test_in_a_network_of_ones_own_its_subnet_must_be_there_and_loses_its_policies(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        network = f"{SUBSCRIPTION}/resourceGroups/apps/providers/Microsoft.Network/virtualNetworks/hub"
        pools = {"agentPoolProfiles": [{"name": "system", "vnetSubnetID": f"{network}/subnets/nodes"}]}
        store.put_resource(replace(CLUSTER, inputs=pools), actor="test")
        balance("web", private_link("web-pls", **{"ip-configuration-subnet": "links"}))
        (message,) = waiting("a warning", lambda: warnings(cluster, namespace, "web"))
        assert f"no subnet {network}/subnets/links" in message
        policies = {"privateLinkServiceNetworkPolicies": "Enabled"}
        subnet = Resource(
            id=f"{network}/subnets/links", token="azure-native:network:Subnet", outputs=policies
        )
        store.create_resource(subnet, actor="test")
        waiting("an address", lambda: address(cluster, namespace, "web"))
        changed = store.resource(subnet.id)
        assert changed
        assert changed.outputs == {"privateLinkServiceNetworkPolicies": "Disabled"}

    def test_a_changed_annotation_changes_it_and_keeps_its_connections(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        balance("web", private_link("web-pls", visibility="*"))
        waiting("an address", lambda: address(cluster, namespace, "web"))
        connections = [{"id": f"{pls_id('web-pls')}/privateEndpointConnections/grafana.1"}]
        store.change_resource(
            pls_id("web-pls"),
            lambda old: replace(old, outputs={**old.outputs, "privateEndpointConnections": connections}),
            actor="test",
        )
        change = {"metadata": {"annotations": {f"{PREFIX}pls-visibility": "one two"}}}
        cluster.patch(Service, "web", change, namespace=namespace)

        def changed() -> Resource | None:
            made = store.resource(pls_id("web-pls"))
            return made if made and made.outputs["visibility"] == {"subscriptions": ["one", "two"]} else None

        assert waiting("the change", changed).outputs["privateEndpointConnections"] == connections

    def test_a_service_made_before_the_cluster_is_known_is_served_later(
        self,
        cluster: Client,
        namespace: str,
        store: Store,
        balance: Callable[..., None],
        waiting: Callable[..., Any],
    ) -> None:
        store.delete_resource(CLUSTER.id, actor="test")
        balance("web", private_link("web-pls"))
        waiting("a warning", lambda: warnings(cluster, namespace, "web"))
        assert address(cluster, namespace, "web") is None
        store.create_resource(CLUSTER, actor="test")
        waiting("an address", lambda: address(cluster, namespace, "web"))
