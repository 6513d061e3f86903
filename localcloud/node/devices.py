# SPDX-License-Identifier: Apache-2.0
"""GPUs of a real node that has none: what stand-in device plugins offer, and what containers get that ask for one.

The plugin is in the control plane's executable (`toolchain/control-plane/device_plugin.go`); it follows the files that
are written here, one for each strategy. A node without them is one whose GPUs have no driver: its plugin offers
nothing.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from localcloud.kube.gpus import SOCKETS, STRATEGIES, STRATEGY_FLAG, STRATEGY_VARIABLE, Gpus
from localcloud.node.images import Image

FOLDER: Final = "device-plugins"
"""The kubelet's, in which plugins are found."""

PROGRAM: Final = "/usr/bin/kube"
COMMAND: Final = "/usr/bin/device-plugin"
VARIABLES: Final = {"nvidia": "NVIDIA_VISIBLE_DEVICES", "amd": "AMD_VISIBLE_DEVICES"}
PLUGIN: Final = f"""#!/bin/sh
strategy=${{{STRATEGY_VARIABLE}:-none}}
case "$*" in
*{STRATEGY_FLAG}=mixed*) strategy=mixed ;;
*{STRATEGY_FLAG}=single*) strategy=single ;;
esac
exec {PROGRAM} device-plugin --vendor @VENDOR@.com --devices {SOCKETS}/gpus-$strategy.json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A node's GPUs with their driver.

    `programs` are paths in a container that is given a GPU, and the text of the executable file there: a vendor's
    runtime puts the driver's programs, `nvidia-smi` for one, into containers in the same way. `unhealthy` are ids: of
    whole GPUs `GPU-0` and so on, of parts of GPUs `PART-0` and so on.
    """

    gpus: Gpus
    programs: Mapping[str, str] = field(default_factory=dict)
    unhealthy: Collection[str] = ()

    def devices(self, strategy: str) -> dict[str, dict[str, str]]:
        """By the name of a resource, the health of its devices."""
        kind = "PART" if self.gpus.slices and strategy != "none" else "GPU"
        return {
            name: {
                f"{kind}-{number}": "Unhealthy" if f"{kind}-{number}" in self.unhealthy else "Healthy"
                for number in range(int(count))
            }
            for name, count in self.gpus.resources(strategy).items()
        }


def plugin_image(kube: Path, name: str) -> Image:
    """An image that plays a vendor's device plugin. Of what the vendor's is told, it follows the strategy."""
    vendor = "amd" if "amd" in name or "rocm" in name else "nvidia"
    script = PLUGIN.replace("@VENDOR@", vendor)
    return Image(name=name, files={PROGRAM: kube, COMMAND: script}, entrypoint=[COMMAND])


def write(kubelet: Path, hardware: Hardware) -> None:
    """Make these the node's GPUs. `kubelet` is the kubelet's folder, as this machine sees it."""
    vendor = hardware.gpus.vendor
    mounts = {}
    for path, text in hardware.programs.items():
        program = kubelet / "gpu-programs" / vendor / path.lstrip("/").replace("/", "_")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
        mounts[path] = f"/var/lib/kubelet/{program.relative_to(kubelet)}"
    for strategy in STRATEGIES:
        described: dict[str, Any] = {
            name: {"devices": devices, "mounts": mounts, "variable": VARIABLES[vendor]}
            for name, devices in hardware.devices(strategy).items()
        }
        unfinished = kubelet / FOLDER / "unfinished.json"
        unfinished.write_text(json.dumps(described))
        unfinished.replace(kubelet / FOLDER / f"gpus-{strategy}.json")


def remove(kubelet: Path) -> None:
    """Take the driver away."""
    for file in (kubelet / FOLDER).glob("gpus-*.json"):
        file.unlink()
