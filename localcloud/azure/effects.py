# SPDX-License-Identifier: Apache-2.0
"""What else happens when a resource is made, changed or removed: at its neighbours in Azure, and inside the cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from localcloud.azure import private_link, types_basic, types_cluster, types_grafana
from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.azure.surroundings import Surroundings

ACTOR: Final = "azure-native"


class EffectFailed(Exception):
    """The resource is there, but what it stands for did not come about; the text is Azure's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where effects happen."""

    store: Store
    surroundings: Surroundings


Effect = Callable[[Resource, Place], None]


def _none(_resource: Resource, _place: Place) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """`created` runs when a resource has just been stored, and once more after a creation that failed; `kept` then
    and after each change; `removing` before the resource is taken away. Each may be repeated.
    """

    created: Effect = field(default=_none)
    kept: Effect = field(default=_none)
    removing: Effect = field(default=_none)


def effects_of(token: str) -> Effects:
    return _EFFECTS.get(token, _NOTHING)


def _request(endpoint: Resource, place: Place) -> None:
    private_link.request(place.store, endpoint, actor=ACTOR)


def _withdraw(endpoint: Resource, place: Place) -> None:
    private_link.withdraw(place.store, endpoint, actor=ACTOR)


def _node_group(cluster: Resource, place: Place) -> None:
    """AKS makes a resource group for the nodes."""
    id = types_cluster.node_resource_group_id(cluster)
    outputs = {
        "name": id.rpartition("/")[2],
        "location": cluster.outputs["location"],
        "managedBy": cluster.id,
        "properties": {"provisioningState": "Succeeded"},
        "type": "Microsoft.Resources/resourceGroups",
    }
    place.store.put_resource(Resource(id=id, token=types_basic.RESOURCE_GROUP, outputs=outputs), actor=ACTOR)


def _in_cluster(what: str) -> Effect:
    """The effect that `cluster_effects` has under this name."""

    def effect(resource: Resource, place: Place) -> None:
        # The Kubernetes client takes a while to load, and most engine runs change nothing in the cluster.
        import httpx2
        from lightkube import ApiError

        from localcloud.azure import cluster_effects

        try:
            getattr(cluster_effects, what)(resource, place)
        except (ApiError, httpx2.HTTPError) as error:
            if what.startswith("remove_") and isinstance(error, httpx2.TransportError):
                return  # a cluster that does not answer any more goes with all that is in it
            raise EffectFailed(f"{resource.id}: the local cluster answered: {error}") from error

    return effect


def _cluster_removing(cluster: Resource, place: Place) -> None:
    _in_cluster("remove_cluster")(cluster, place)
    place.store.delete_resource(types_cluster.node_resource_group_id(cluster), actor=ACTOR)


_NOTHING: Final = Effects()
_EFFECTS: Final = {
    types_grafana.ENDPOINT: Effects(created=_request, removing=_withdraw),
    types_cluster.CLUSTER: Effects(
        created=_node_group, kept=_in_cluster("keep_cluster"), removing=_cluster_removing
    ),
    types_cluster.AGENT_POOL: Effects(kept=_in_cluster("keep_pool"), removing=_in_cluster("remove_pool")),
    types_cluster.EXTENSION: Effects(
        kept=_in_cluster("keep_extension"), removing=_in_cluster("remove_extension")
    ),
}
