# SPDX-License-Identifier: Apache-2.0
"""Managed private endpoints made and removed at Resource Manager itself, beside the provider."""

from collections.abc import Callable

from localcloud.azure import private_link, shapes
from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import Asked, check_parent, check_references
from localcloud.azure.known_types import knowledge_of
from localcloud.azure.records import Json, Resource
from localcloud.azure.resource_types import resource_type
from localcloud.azure.store import Store
from localcloud.azure.types_grafana import ENDPOINT

SEGMENT = "/managedprivateendpoints/"


def is_endpoint(path: str) -> bool:
    return SEGMENT in path.lower() and path.lower().rpartition("/")[0].endswith(SEGMENT.rstrip("/"))


def put(store: Store, id: str, body: Json, *, arm: Callable[[], str], actor: str) -> Resource:
    """Make one. Raises AzureError: nothing in an endpoint that is there can be changed."""
    known = knowledge_of(ENDPOINT)
    assert known is not None
    if store.resource(id) is not None:
        raise AzureError(409, "AlreadyExists", f"{id} exists, and nothing in it can be changed.")
    inputs = {
        **(known.parameters_of(id) or {}),
        **{key: body[key] for key in ("location", "tags") if body.get(key)},
        **body.get("properties", {}),
    }
    asked = Asked(id=id, inputs=inputs, before=None, store=store, arm=arm)
    check_parent(asked)
    check_references(asked)
    known.allowed(asked)
    outputs = shapes.outputs(resource_type(ENDPOINT), known, asked)
    endpoint = Resource(id=id, token=ENDPOINT, inputs=inputs, outputs=outputs)
    store.create_resource(endpoint, actor=actor)
    private_link.request(store, endpoint, actor=actor)
    return endpoint


def delete(store: Store, id: str, *, actor: str) -> bool:
    """Remove one with its connection; False if there is none."""
    endpoint = store.resource(id)
    if endpoint is None:
        return False
    private_link.withdraw(store, endpoint, actor=actor)
    return store.delete_resource(id, actor=actor)
