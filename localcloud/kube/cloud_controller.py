# SPDX-License-Identifier: Apache-2.0
"""Plays Azure's cloud controller: a LoadBalancer Service gets an address and, if asked for, a Private Link Service.

In the real one's order. Up: finalizer, Private Link Service, address. Down: connections, Private Link Service,
finalizer. And with its rules (reconcilePrivateLinkService of cloud-provider-azure): what it refuses becomes an Event
and the Service gets no address; a Private Link Service cannot be renamed, and stays when its annotation is taken
away, until the Service is deleted or becomes public. No traffic flows through the addresses.
"""

import ipaddress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from lightkube import Client
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Service
from lightkube.types import PatchType

from localcloud.azure import private_link
from localcloud.azure.records import Resource
from localcloud.azure.store import AlreadyThere, NotThere, Store
from localcloud.kube import private_link_service as pls
from localcloud.kube import private_link_subnet
from localcloud.kube.watching import WATCH_SECONDS, Follower, TryAgain

ACTOR: Final = "cloud-controller"
FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
INTERNAL_ADDRESSES: Final = ipaddress.IPv4Network("10.224.0.0/16")
PUBLIC_ADDRESSES: Final = ipaddress.IPv4Network("203.0.113.0/24")
"""RFC 5737: addresses for documentation, which lead nowhere."""

RESERVED_ADDRESSES: Final = 4
"""Azure keeps the network address and the next three of every subnet."""

# Owned by the controller once the Private Link Service is there: not compared, not overwritten.
_NOT_ASKED_FOR: Final = (private_link.CONNECTIONS,)


class CloudController:
    """The controller of the cluster that `store` holds, from `start` until `stop`."""

    def __init__(self, kubernetes: Client, store: Store) -> None:
        self._kubernetes = kubernetes
        self._store = store
        self._follower: Follower[Service] | None = None
        self._refused: dict[str, str] = {}

    def start(self) -> None:
        services = partial(self._kubernetes.watch, Service, namespace="*", server_timeout=WATCH_SECONDS)
        self._follower = Follower("services", services, self._service)

    def stop(self) -> None:
        if self._follower:
            self._follower.stop()

    def _service(self, service: Service) -> None:
        assert service.metadata
        assert service.spec
        ours = service.spec.type == "LoadBalancer" and service.spec.loadBalancerClass is None
        if service.metadata.deletionTimestamp or not ours:
            self._tear_down(service)
        else:
            self._set_up(service)

    def _set_up(self, service: Service) -> None:
        finalizers = _finalizers(service)
        if FINALIZER not in finalizers:
            # The change comes back as an event, with the finalizer.
            self._patch_finalizers(service, [*finalizers, FINALIZER])
            return
        if pls.wants_private_link(service):
            try:
                self._provide(service)
            except pls.NotPossible as reason:
                self._refuse(service, str(reason))
        elif not pls.is_internal(service):
            for made in self._made_for(service):
                self._remove(made)  # it was in front of the internal address
        self._refused.pop(pls.owner(service), None)
        network = INTERNAL_ADDRESSES if pls.is_internal(service) else PUBLIC_ADDRESSES
        if not any(ipaddress.ip_address(each.ip) in network for each in _ingress(service)):
            self._patch_ingress(service, [{"ip": self._free_address(network), "ipMode": "VIP"}])

    def _tear_down(self, service: Service) -> None:
        finalizers = _finalizers(service)
        if FINALIZER not in finalizers:
            return
        for made in self._made_for(service):
            self._remove(made)
        self._refused.pop(pls.owner(service), None)
        assert service.metadata
        if _ingress(service) and not service.metadata.deletionTimestamp:
            self._patch_ingress(service, [])
        self._patch_finalizers(service, [each for each in finalizers if each != FINALIZER])

    # The Private Link Service

    def _provide(self, service: Service) -> None:
        """Make or change the Private Link Service as the annotations want it. Raises NotPossible."""
        clusters = self._store.resources(token=pls.CLUSTER_TOKEN)
        if not clusters:
            raise pls.NotPossible("there is no managed cluster to which this Service could belong")
        cluster = pls.Cluster.of(clusters[0])
        made = next(iter(self._made_for(service)), None)
        wanted = pls.private_link_service(service, cluster, name=made.name if made else None)
        if made and made.id.lower() != wanted.id.lower():
            raise pls.NotPossible(f"private link service {made.id} cannot become {wanted.id}")
        there = self._store.resource(wanted.id)
        if there is not None and _owner(there) != pls.owner(service):
            raise pls.NotPossible(
                f"private link service {wanted.id} belongs to {_owner(there) or 'nobody known here'}"
            )
        if there is not None and there.inputs == wanted.inputs:
            return
        if subnet_id := pls.subnet_id(service, cluster):
            private_link_subnet.prepare(self._store, subnet_id, actor=ACTOR)
        try:
            if there is None:
                self._store.create_resource(wanted, actor=ACTOR)
            else:
                self._store.change_resource(wanted.id, lambda old: _changed(old, wanted), actor=ACTOR)
        except (AlreadyThere, NotThere) as error:
            raise TryAgain(f"{wanted.id} was changed by someone else meanwhile") from error

    def _made_for(self, service: Service) -> list[Resource]:
        return [each for each in self._store.resources(token=pls.TOKEN) if _owner(each) == pls.owner(service)]

    def _remove(self, made: Resource) -> None:
        """Connections first: Azure refuses to delete a Private Link Service that has one."""
        for connection in made.outputs.get(private_link.CONNECTIONS) or []:
            private_link.remove_connection(self._store, connection["id"], actor=ACTOR)
        self._store.delete_resource(made.id, actor=ACTOR)

    def _refuse(self, service: Service, why: str) -> None:
        """Say it once in an Event of the Service, as the real controller does, and try again later."""
        if self._refused.get(pls.owner(service)) != why:
            self._warn(service, f"Error syncing load balancer: failed to ensure load balancer: {why}")
            self._refused[pls.owner(service)] = why
        raise TryAgain(f"{pls.owner(service)}: {why}")

    # The Kubernetes side

    def _patch_finalizers(self, service: Service, finalizers: list[str]) -> None:
        # With the version seen: another controller's finalizer must not be lost.
        version = service.metadata and service.metadata.resourceVersion
        self._patch(Service, service, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})

    def _patch_ingress(self, service: Service, ingress: list[dict[str, str]]) -> None:
        self._patch(Service.Status, service, {"status": {"loadBalancer": {"ingress": ingress}}})

    def _patch(self, kind: Any, service: Service, change: dict[str, Any]) -> None:
        assert service.metadata
        assert service.metadata.name
        name, namespace = service.metadata.name, service.metadata.namespace
        self._kubernetes.patch(kind, name, change, namespace=namespace, patch_type=PatchType.MERGE)

    def _free_address(self, network: ipaddress.IPv4Network) -> str:
        used = {
            each.ip for other in self._kubernetes.list(Service, namespace="*") for each in _ingress(other)
        }
        for number, address in enumerate(network):
            if number >= RESERVED_ADDRESSES and str(address) not in used:
                return str(address)
        raise TryAgain(f"{network} has no free address left")

    def _warn(self, service: Service, message: str) -> None:
        assert service.metadata
        namespace, now = service.metadata.namespace, datetime.now(UTC)
        self._kubernetes.create(
            Event(
                metadata=ObjectMeta(generateName=f"{service.metadata.name}.", namespace=namespace),
                involvedObject=ObjectReference(
                    apiVersion="v1",
                    kind="Service",
                    name=service.metadata.name,
                    namespace=namespace,
                    uid=service.metadata.uid,
                ),
                type="Warning",
                reason="SyncLoadBalancerFailed",
                message=message,
                source=EventSource(component="service-controller"),
                firstTimestamp=now,
                lastTimestamp=now,
                count=1,
            )
        )


def _finalizers(service: Service) -> list[str]:
    return list((service.metadata and service.metadata.finalizers) or [])


def _ingress(service: Service) -> list[Any]:
    balancer = service.status.loadBalancer if service.status else None
    return list((balancer and balancer.ingress) or [])


def _owner(resource: Resource) -> str | None:
    tags = resource.outputs.get("tags") or {}
    return tags.get(pls.OWNER_TAG)


def _changed(old: Resource, wanted: Resource) -> Resource:
    kept = {name: old.outputs[name] for name in _NOT_ASKED_FOR if name in old.outputs}
    return Resource(id=old.id, token=old.token, inputs=wanted.inputs, outputs={**wanted.outputs, **kept})
