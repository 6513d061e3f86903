# SPDX-License-Identifier: Apache-2.0
"""Plays the vendors' device plugins on nodes without a kubelet: what a plugin's pod offers of a node's GPUs.

As on a real node, GPUs can be asked for only while a plugin runs there, and under the names that its strategy gives
them. Which GPUs a node has is written on it, as an annotation. Values in, values out.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

from lightkube.models.core_v1 import Container
from lightkube.resources.core_v1 import Node, Pod

ANNOTATION: Final = "localcloud.gpuheap/gpus"
SOCKETS: Final = "/var/lib/kubelet/device-plugins"
"""A pod that mounts this folder of the node is a device plugin."""

STRATEGY_VARIABLE: Final = "MIG_STRATEGY"
"""https://github.com/NVIDIA/k8s-device-plugin#configuring-the-nvidia-device-plugin-binary"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """Those of one node."""

    vendor: str
    """`nvidia` or `amd`."""
    count: int
    slices: int = 0
    """Into how many MIG instances each is cut; 0: none is."""
    slice: str = ""
    """What NVIDIA calls such an instance: `1g.10gb`."""

    @classmethod
    def of(cls, node: Node) -> Self | None:
        """What the node says that it has."""
        annotations = (node.metadata and node.metadata.annotations) or {}
        text = annotations.get(ANNOTATION)
        return cls(**json.loads(text)) if text else None

    def annotation(self) -> dict[str, str]:
        return {ANNOTATION: json.dumps(asdict(self))}

    def resources(self, strategy: str) -> dict[str, str]:
        """What a plugin with the strategy offers, by name."""
        whole = f"{self.vendor}.com/gpu"
        if not self.slices or strategy == "none":
            return {whole: str(self.count)}
        name = f"{self.vendor}.com/mig-{self.slice}" if strategy == "mixed" else whole
        return {name: str(self.count * self.slices)}


def offered(node: Node, pod: Pod) -> Mapping[str, str]:
    """The resources that a plugin's pod adds to its node: those of the node's GPUs, if they are of its vendor."""
    assert pod.spec
    gpus, plugin = Gpus.of(node), pod.spec.containers[0]
    return gpus.resources(_strategy(plugin)) if gpus and gpus.vendor == _vendor(plugin) else {}


def is_plugin(pod: Pod) -> bool:
    volumes = (pod.spec and pod.spec.volumes) or ()
    return any(each.hostPath and each.hostPath.path.rstrip("/") == SOCKETS for each in volumes)


def _vendor(plugin: Container) -> str:
    """The images are nvcr.io/nvidia/k8s-device-plugin and docker.io/rocm/k8s-device-plugin, or copies of them."""
    image = plugin.image or ""
    return "amd" if "rocm" in image or "amd" in image else "nvidia"


def _strategy(plugin: Container) -> str:
    named = {each.name: each.value for each in plugin.env or ()}
    return named.get(STRATEGY_VARIABLE) or "none"
