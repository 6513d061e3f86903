# SPDX-License-Identifier: Apache-2.0
"""A pool of nodes with GPUs on AKS Automatic: a NodePool of Karpenter, and the AKSNodeClass that it refers to.

Karpenter makes a node when a pod waits that fits one, and takes it away when no pod is left on it.
https://learn.microsoft.com/azure/aks/node-auto-provisioning-node-pools
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from .settings import gpu_sizes
from .settings.pools import GpuPool

NODE_CLASS_GROUP: Final = "karpenter.azure.com"
EMPTY_MINUTES: Final = 5
"""How long a node may stand empty: loading a driver and images onto a new one takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterPoolArgs:
    pool: GpuPool
    location: pulumi.Input[str]
    node_subnet_id: pulumi.Input[str | None]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    tags: Mapping[str, str] = field(default_factory=dict)


class KarpenterPool(pulumi.ComponentResource):
    """Nodes of one size, tainted so that only pods which want a GPU run there, and bounded in number."""

    def __init__(
        self, name: str, args: KarpenterPoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:KarpenterPool", name, {}, opts)
        options = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on)
        node_class = kubernetes.apiextensions.CustomResource(
            f"{name}-class",
            api_version=f"{NODE_CLASS_GROUP}/v1beta1",
            kind="AKSNodeClass",
            metadata={"name": args.pool.name},
            spec=_without_none(
                vnetSubnetID=args.node_subnet_id, osDiskSizeGB=args.pool.os_disk_gib, tags=args.tags or None
            ),
            opts=options,
        )
        self.pool = kubernetes.apiextensions.CustomResource(
            name,
            api_version="karpenter.sh/v1",
            kind="NodePool",
            metadata={"name": args.pool.name},
            spec={
                "template": {
                    "metadata": {"labels": args.pool.labels},
                    "spec": {
                        "nodeClassRef": {
                            "group": NODE_CLASS_GROUP,
                            "kind": "AKSNodeClass",
                            "name": args.pool.name,
                        },
                        "requirements": _requirements(args.pool, args.location),
                        "taints": [_taint(text) for text in args.pool.taints],
                        # Images are renewed in the maintenance window; age alone is no reason to stop a training.
                        "expireAfter": "Never",
                    },
                },
                # Moving pods together would stop them.
                "disruption": {
                    "consolidationPolicy": "WhenEmpty",
                    "consolidateAfter": f"{EMPTY_MINUTES}m",
                },
                "limits": _limits(args.pool),
            },
            opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[node_class])),
        )
        self.register_outputs({"poolName": args.pool.name})


def _requirements(pool: GpuPool, location: pulumi.Input[str]) -> list[dict[str, Any]]:
    wanted: dict[str, Any] = {
        "kubernetes.io/os": ["linux"],
        "node.kubernetes.io/instance-type": [pool.vm_size],
        "karpenter.sh/capacity-type": ["spot" if pool.spot else "on-demand"],
    }
    if pool.zones:
        wanted["topology.kubernetes.io/zone"] = [
            pulumi.Output.concat(location, "-", zone) for zone in pool.zones
        ]
    return [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()]


def _taint(text: str) -> dict[str, str]:
    """From AKS's `key=value:effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _limits(pool: GpuPool) -> dict[str, str]:
    """Karpenter counts resources, not nodes."""
    size = gpu_sizes.known(pool.vm_size)
    if size is None or pool.autoscale is None:
        raise ValueError(f"pool {pool.name} has no bound")
    return {f"{pool.vendor}.com/gpu": str(pool.autoscale.max * size.gpus)}


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
