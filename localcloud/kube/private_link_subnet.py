# SPDX-License-Identifier: Apache-2.0
"""What Azure's cloud controller does to the subnet of a Private Link Service: it must be there, without policies.

The subnet may be a resource of its own or stand inside its virtual network.
"""

from dataclasses import replace
from typing import Final

from localcloud.azure.records import Json, Resource
from localcloud.azure.store import NotThere, Store
from localcloud.kube.private_link_service import NotPossible

POLICIES: Final = "privateLinkServiceNetworkPolicies"


def prepare(store: Store, subnet_id: str, *, actor: str) -> None:
    """Disable the policies, which would block the Private Link Service.

    Raises NotPossible if there is no such subnet.
    """
    network_id, _, name = subnet_id.rpartition("/subnets/")

    def within_network(network: Resource) -> Resource:
        subnets: list[Json] = network.outputs.get("subnets") or []
        if all(each.get("name") != name for each in subnets):
            raise NotThere(subnet_id)
        changed = [{**each, POLICIES: "Disabled"} if each.get("name") == name else each for each in subnets]
        return replace(network, outputs={**network.outputs, "subnets": changed})

    try:
        store.change_resource(subnet_id, _without_policies, actor=actor)
    except NotThere:
        try:
            store.change_resource(network_id, within_network, actor=actor)
        except NotThere as error:
            raise NotPossible(f"there is no subnet {subnet_id} for the private link service") from error


def _without_policies(subnet: Resource) -> Resource:
    return replace(subnet, outputs={**subnet.outputs, POLICIES: "Disabled"})
