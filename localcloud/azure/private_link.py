# SPDX-License-Identifier: Apache-2.0
"""Private endpoint connections: what a managed private endpoint asks of a Private Link Service, and how the two agree.

A connection is kept in the list `privateEndpointConnections` of its Private Link Service. Grafana's side learns of its
approval only by a refresh, as in Azure.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from localcloud.azure.errors import AzureError, not_found
from localcloud.azure.knowledge import guid
from localcloud.azure.records import Json, Resource
from localcloud.azure.store import NotThere, Store
from localcloud.azure.types_grafana import ENDPOINT

GRAFANA_SUBSCRIPTION: Final = "00000000-0000-0000-0000-0000000000fe"
"""The subscription, Microsoft's own, in which Managed Grafana has its private endpoints."""

CONNECTIONS: Final = "privateEndpointConnections"
STATE: Final = "privateLinkServiceConnectionState"
VERBS: Final = {"Approved": "approve", "Rejected": "reject"}


def request(store: Store, endpoint: Resource, *, actor: str) -> None:
    """Put the connection that a managed private endpoint asks for into its Private Link Service, if it is not there."""
    if any(_of_endpoint(store, endpoint)):
        return
    service_id = str(endpoint.inputs["privateLinkResourceId"])
    private_endpoint = _private_endpoint_id(endpoint)
    name = f"{private_endpoint.rpartition('/')[2]}.{guid(endpoint.id, 'connection')}"
    connection = {
        "id": f"{service_id}/{CONNECTIONS}/{name}",
        "name": name,
        "type": f"Microsoft.Network/privateLinkServices/{CONNECTIONS}",
        "etag": guid(endpoint.id, "etag"),
        "linkIdentifier": str(int(guid(endpoint.id)[:6], 16)),
        "privateEndpoint": {"id": private_endpoint},
        "privateEndpointLocation": endpoint.inputs.get("location", ""),
        "provisioningState": "Succeeded",
        STATE: {
            "status": "Pending",
            "description": endpoint.inputs.get("requestMessage", ""),
            "actionsRequired": "None",
        },
    }
    add_connection(store, service_id, connection, actor=actor)


def add_connection(store: Store, service_id: str, connection: Json, *, actor: str) -> None:
    """Add a connection, whoever asks for it. Raises AzureError when there is no such Private Link Service."""
    _change_connections(store, service_id, lambda there: [*there, connection], actor=actor)
    store.record(actor=actor, verb="create", id=connection["id"])


def connection_of(store: Store, id: str) -> Json:
    """The connection with this id. Raises AzureError."""
    for connection in _connections(store.resource(_service_of(id))):
        if connection["id"].lower() == id.lower():
            return connection
    raise not_found(id)


def set_state(store: Store, id: str, state: Json, *, actor: str) -> Json:
    """Approve or reject a connection; returns it as it is then. Raises AzureError."""
    before = connection_of(store, id)[STATE]["status"]
    status = state.get("status")
    if status not in VERBS:
        raise AzureError(
            400, "InvalidRequestFormat", f"{STATE}.status must be Approved or Rejected; it is {status!r}."
        )
    if before == "Rejected" and status == "Approved":
        raise AzureError(400, "InvalidRequestFormat", f"{id} was rejected, and that cannot be taken back.")

    def change(there: list[Json]) -> list[Json]:
        return [
            {**one, STATE: {**one[STATE], **state}} if one["id"].lower() == id.lower() else one
            for one in there
        ]

    _change_connections(store, _service_of(id), change, actor=actor)
    store.record(actor=actor, verb=VERBS[status], id=id)
    return connection_of(store, id)


def remove_connection(store: Store, id: str, *, actor: str) -> bool:
    """Take a connection away; False if there is none. The endpoint that asked for it is then disconnected."""
    try:
        connection_of(store, id)
    except AzureError:
        return False
    _change_connections(
        store,
        _service_of(id),
        lambda there: [one for one in there if one["id"].lower() != id.lower()],
        actor=actor,
    )
    store.record(actor=actor, verb="delete", id=id)
    return True


def withdraw(store: Store, endpoint: Resource, *, actor: str) -> None:
    """Remove the connection of a managed private endpoint that is going away."""
    for id, _ in _of_endpoint(store, endpoint):
        remove_connection(store, id, actor=actor)


def refresh(store: Store, workspace_id: str, *, actor: str) -> None:
    """Let every managed private endpoint of a Grafana workspace see what has become of its connection."""
    for endpoint in store.resources(token=ENDPOINT, under=workspace_id):
        seen = next((connection for _, connection in _of_endpoint(store, endpoint)), None)
        state = (
            seen[STATE] if seen else {"status": "Disconnected", "description": "The connection was removed."}
        )
        address = _private_address(endpoint) if state["status"] == "Approved" else ""
        change: Json = {
            "connectionState": {key: state[key] for key in ("status", "description") if key in state},
            "privateLinkServicePrivateIP": address,
        }
        try:
            store.change_resource(endpoint.id, partial(_with_outputs, change=change), actor=actor)
        except NotThere:  # it was deleted meanwhile
            continue
    store.record(actor=actor, verb="refresh", id=workspace_id)


def _with_outputs(endpoint: Resource, *, change: Json) -> Resource:
    return replace(endpoint, outputs={**endpoint.outputs, **change})


def _of_endpoint(store: Store, endpoint: Resource) -> Iterator[tuple[str, Json]]:
    wanted = _private_endpoint_id(endpoint).lower()
    for connection in _connections(store.resource(str(endpoint.inputs["privateLinkResourceId"]))):
        if connection["privateEndpoint"]["id"].lower() == wanted:
            yield connection["id"], connection


def _private_endpoint_id(endpoint: Resource) -> str:
    workspace = endpoint.id.split("/")[-3]
    name = f"grafana-{workspace}-{endpoint.name}"
    group = f"/subscriptions/{GRAFANA_SUBSCRIPTION}/resourceGroups/grafana-{guid(workspace)[:8]}"
    return f"{group}/providers/Microsoft.Network/privateEndpoints/{name}"


def _private_address(endpoint: Resource) -> str:
    return f"10.201.{int(guid(endpoint.id)[:2], 16)}.{4 + int(guid(endpoint.id)[2:4], 16) % 250}"


def _service_of(connection_id: str) -> str:
    return connection_id.rsplit("/", 2)[0]


def _connections(service: Resource | None) -> list[Json]:
    return list(service.outputs.get(CONNECTIONS) or ()) if service else []


def _change_connections(store: Store, service_id: str, change: Any, *, actor: str) -> None:
    def changed(service: Resource) -> Resource:
        return replace(service, outputs={**service.outputs, CONNECTIONS: change(_connections(service))})

    try:
        store.change_resource(service_id, changed, actor=actor)
    except NotThere:
        raise not_found(service_id) from None
