# SPDX-License-Identifier: Apache-2.0
"""What goes with what: the rules between parts of the configuration that are each right by themselves."""

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic_core import PydanticCustomError

from .base import refuse
from .cluster import STANDARD_UPGRADE_CHANNEL, ExistingCluster, NewCluster
from .gpu_sizes import SIZES, known
from .grafana import PrivateAccess
from .network import GivenSubnets, Network
from .network import problems as range_problems
from .pools import GpuPool
from .private_link import PrivateLink

Cluster = NewCluster | ExistingCluster

# On AKS Automatic a pool is Karpenter's: what it has no word for.
_NOT_KARPENTERS: Final = {
    "count": "AKS Automatic makes nodes as pods need them",
    "capacity_reservation_group": "nodes that AKS Automatic makes cannot use reserved capacity",
    "mig": "AKS Automatic has no pools with MIG",
    "spot_max_price": "AKS Automatic pays spot nodes up to the regular price",
    "driver": "AKS Automatic installs the driver that fits",
    "os_disk": "AKS Automatic chooses the OS disk",
    "upgrade": "AKS Automatic replaces nodes in its own way",
}
_ALIASES: Final = {name: GpuPool.model_fields[name].alias or name for name in _NOT_KARPENTERS}


def problems(
    cluster: Cluster,
    network: Network | GivenSubnets | None,
    pools: Sequence[GpuPool],
    private_link: PrivateLink,
    grafana_access: PrivateAccess | None,
) -> Iterator[PydanticCustomError]:
    yield from _network(cluster, network, private_link, grafana_access)
    yield from _pool_names(pools)
    if isinstance(cluster, NewCluster):
        yield from _new_cluster(cluster)
        if not pools:
            yield refuse(
                "a new cluster needs GPU nodes",
                at=("gpuPools", 0, "vmSize"),
                given="no gpuPools",
                allowed="a size of the NC, ND, NG or NV series",
                examples=["Standard_NC24ads_A100_v4"],
            )
    if cluster.mode == "automatic":
        for place, pool in enumerate(pools):
            yield from _automatic_pool(place, pool)


def _network(
    cluster: Cluster,
    network: Network | GivenSubnets | None,
    private_link: PrivateLink,
    grafana_access: PrivateAccess | None,
) -> Iterator[PydanticCustomError]:
    if isinstance(cluster, ExistingCluster):
        if network is not None:
            yield refuse(
                "an existing cluster keeps its own network",
                at=("network",),
                given="network together with cluster.existing",
                allowed="network only for a new cluster",
                remove=True,
            )
        return
    if private_link.subnet is not None:
        yield refuse(
            "a new cluster's network names this subnet",
            at=("privateLink", "subnet"),
            given=private_link.subnet,
            allowed="a subnet only for an existing cluster",
            remove=True,
        )
    if not isinstance(network, GivenSubnets):
        if private_link.source_range is not None:
            yield refuse(
                "in the stack's own network, network.privateLinkSubnet is that range: from another one Grafana would "
                "not come",
                at=("privateLink", "sourceRange"),
                given=private_link.source_range,
                allowed="a range only for a subnet that is not ours",
                remove=True,
            )
        if network is not None:
            yield from _own_network(network, cluster.mode == "automatic", grafana_access)
        return
    given = network.existing.api_server_subnet_id
    if cluster.mode == "automatic" and given is None:
        yield refuse(
            "in a network that is there, AKS Automatic needs a subnet for the API server",
            at=("network", "existing", "apiServerSubnetId"),
            given="no subnet",
            allowed="a subnet of at least /28 that is delegated to Microsoft.ContainerService/managedClusters",
            examples=["/subscriptions/…/virtualNetworks/shared/subnets/api-server"],
        )
    if cluster.mode == "standard" and given is not None:
        yield _needs_no_api_server_subnet(given, "existing", "apiServerSubnetId")


def _own_network(
    network: Network, automatic: bool, grafana_access: PrivateAccess | None
) -> Iterator[PydanticCustomError]:
    endpoint = grafana_access is not None and grafana_access.subnet_id is None
    yield from range_problems(network, api_server=automatic, private_endpoint=endpoint)
    if network.api_server_subnet is not None and not automatic:
        yield _needs_no_api_server_subnet(network.api_server_subnet, "apiServerSubnet")
    if network.private_endpoint_subnet is not None and not endpoint:
        yield refuse(
            "no endpoint of the stack is in this subnet",
            at=("network", "privateEndpointSubnet"),
            given=network.private_endpoint_subnet,
            allowed="privateEndpointSubnet with grafana.privateAccess, without its subnetId",
            remove=True,
        )


def _needs_no_api_server_subnet(given: str, *keys: str) -> PydanticCustomError:
    return refuse(
        "a standard cluster's API server needs no subnet",
        at=("network", *keys),
        given=given,
        allowed=f"{keys[-1]} with cluster.mode: automatic",
        remove=True,
    )


def _new_cluster(cluster: NewCluster) -> Iterator[PydanticCustomError]:
    if cluster.mode != "automatic":
        yield from _version(cluster)
        return
    for key, given, reason in (
        ("kubernetesVersion", cluster.kubernetes_version, "AKS Automatic chooses the version"),
        ("upgradeChannel", cluster.upgrade_channel, "AKS Automatic upgrades by its stable channel"),
        (
            "localAccounts",
            None if cluster.local_accounts is None else str(cluster.local_accounts).lower(),
            "AKS Automatic admits only Entra identities",
        ),
    ):
        if given is not None:
            yield refuse(
                reason,
                at=("cluster", key),
                given=given,
                allowed=f"{key} with cluster.mode: standard",
                remove=True,
            )


def _version(cluster: NewCluster) -> Iterator[PydanticCustomError]:
    """What AKS upgrades by itself must not be turned back by the next `pulumi up`."""
    version, channel = cluster.kubernetes_version, cluster.upgrade_channel or STANDARD_UPGRADE_CHANNEL
    if version is None:
        return
    if channel in ("stable", "rapid"):
        yield refuse(
            f"AKS chooses the version by the channel {channel}",
            at=("cluster", "kubernetesVersion"),
            given=version,
            allowed="kubernetesVersion with upgradeChannel patch, node-image or none",
            remove=True,
        )
    elif channel == "patch" and version.count(".") > 1:
        yield refuse(
            "AKS chooses the last part of the version by the channel patch",
            at=("cluster", "kubernetesVersion"),
            given=version,
            allowed="two numbers, or three with upgradeChannel node-image or none",
            examples=[version.rpartition(".")[0]],
        )


def _pool_names(pools: Sequence[GpuPool]) -> Iterator[PydanticCustomError]:
    names = [pool.name for pool in pools]
    for place, name in enumerate(names):
        if name in names[:place] or name == "system":
            taken = "the system pool has" if name == "system" else "another pool has"
            yield refuse(
                f"{taken} this name",
                at=("gpuPools", place, "name"),
                given=name,
                allowed="a name that no other pool has",
                examples=[f"{name}{place}"[-12:]],
            )


def _automatic_pool(place: int, pool: GpuPool) -> Iterator[PydanticCustomError]:
    at = ("gpuPools", place)
    for name, reason in _NOT_KARPENTERS.items():
        if getattr(pool, name) is not None:
            yield refuse(
                reason,
                at=(*at, _ALIASES[name]),
                given=str(getattr(pool, name)),
                allowed=f"{_ALIASES[name]} with cluster.mode: standard",
                remove=True,
            )
    if pool.autoscale is None:
        yield refuse(
            "AKS Automatic makes nodes without end if nothing bounds them",
            at=(*at, "autoscale", "max"),
            given="no autoscale",
            allowed="1 to 1000 nodes",
            examples=[4],
        )
    elif pool.autoscale.min:
        yield refuse(
            "AKS Automatic keeps no node that no pod needs",
            at=(*at, "autoscale", "min"),
            given=str(pool.autoscale.min),
            allowed="0",
            examples=[0],
        )
    if known(pool.vm_size) is None:
        yield refuse(
            "how many GPUs this size has is not known, so the pool's bound cannot be said to AKS Automatic",
            at=(*at, "vmSize"),
            given=pool.vm_size,
            allowed=f"one of {', '.join(SIZES)}",
            examples=["Standard_NC24ads_A100_v4"],
        )
