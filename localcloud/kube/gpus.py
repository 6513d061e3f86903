# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node that has none, and what a device plugin offers of them. Values in, values out.

As on a real node, GPUs can be asked for only while a plugin runs there, and under the names that its strategy gives
them. Which GPUs a simulated node has is written on it, as an annotation; those of a real one are in
`node/devices.py`.
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

STRATEGIES: Final = ("none", "single", "mixed")
STRATEGY_VARIABLE: Final = "MIG_STRATEGY"
"""https://github.com/NVIDIA/k8s-device-plugin#configuring-the-nvidia-device-plugin-binary"""

STRATEGY_FLAG: Final = "resource_naming_strategy"
"""https://instinct.docs.amd.com/projects/k8s-device-plugin/en/latest/user-guide/configuration.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """Those of one node."""

    vendor: str
    """`nvidia` or `amd`."""
    count: int
    slices: int = 0
    """Into how many parts each is cut; 0: none is."""
    slice: str = ""
    """What the vendor calls such a part: NVIDIA `1g.10gb`, AMD `cpx_nps4`."""

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
        part = f"nvidia.com/mig-{self.slice}" if self.vendor == "nvidia" else f"amd.com/{self.slice}"
        return {part if strategy == "mixed" else whole: str(self.count * self.slices)}


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
    if _vendor(plugin) == "amd":
        return (
            "mixed"
            if any(each.endswith(f"{STRATEGY_FLAG}=mixed") for each in plugin.args or ())
            else "single"
        )
    named = {each.name: each.value for each in plugin.env or ()}
    return named.get(STRATEGY_VARIABLE) or "none"
