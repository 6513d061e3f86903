# SPDX-License-Identifier: Apache-2.0
"""Who may run on GPU nodes."""

from components.cluster import Cluster
from components.config import StackConfig
from components.gpu_vendors import AMD, NVIDIA, Taint
from components.placement import Placement, PlacementArgs
from components.placement_rules import Owner
from components.settings.cluster import NewCluster
from components.settings.placement import TAINT, CustomOwner


def placement(config: StackConfig, cluster: Cluster) -> Placement:
    chosen = config.placement
    new = isinstance(config.cluster, NewCluster)
    return Placement(
        "placement",
        PlacementArgs(
            # Both vendors', whatever pools there are today: a pod must not be right by the lack of a pool.
            taints={NVIDIA: _taint(chosen.taints.nvidia), AMD: _taint(chosen.taints.amd)},
            provider=cluster.provider,
            depends_on=cluster.ready,
            action=chosen.action or ("Deny" if new else "Warn"),
            exempt_namespaces=chosen.exempt_namespaces,
            custom_owners=[_owner(owner) for owner in chosen.custom_owners],
        ),
    )


def _taint(text: str) -> Taint:
    parts = TAINT.match(text)
    assert parts, "the configuration has checked it"
    return Taint(key=parts["key"], value=parts["value"] or "", effect=parts["effect"])


def _owner(owner: CustomOwner) -> Owner:
    return Owner(
        group=owner.group,
        versions=(owner.version,),
        resource=owner.resource,
        kind=owner.kind,
        pod_specs=tuple(owner.pod_specs),
    )
