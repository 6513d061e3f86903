# SPDX-License-Identifier: Apache-2.0
"""GPUs of a real node that has none: what the stand-in device plugin offers, and what containers get that ask for one.

The plugin is in the control plane's executable (`toolchain/control-plane/device_plugin.go`); it follows the file that
is written here. A node without the file is one whose GPUs have no driver: its plugin offers nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from localcloud.node.images import Image

FILE: Final = "device-plugins/gpus.json"
PROGRAM: Final = "/usr/bin/kube"
PLUGIN: Final = "localhost/gpuheap/device-plugin:1"
VARIABLES: Final = {"nvidia.com": "NVIDIA_VISIBLE_DEVICES", "amd.com": "AMD_VISIBLE_DEVICES"}

Health = Literal["Healthy", "Unhealthy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What one resource name stands for: devices by id, and files that a container with one of them sees.

    `mounts` are paths in the container, and the text of the executable file there: a vendor's runtime puts the driver's
    programs, `nvidia-smi` for one, into containers in the same way.
    """

    devices: Mapping[str, Health]
    mounts: Mapping[str, str] = field(default_factory=dict)


def plugin_image(kube: Path, name: str = PLUGIN, command: str = "/usr/bin/nvidia-device-plugin") -> Image:
    """An image that plays a vendor's device plugin; `command` is where the vendor's own has its program.

    Arguments that the stand-in does not know are for the vendor's.
    """
    vendor = "amd.com" if "amd" in name or "rocm" in name else "nvidia.com"
    script = f"#!/bin/sh\nexec {PROGRAM} device-plugin --vendor {vendor}\n"
    return Image(name=name, files={PROGRAM: kube, command: script}, entrypoint=[command])


def write(kubelet: Path, resources: Mapping[str, Resource]) -> None:
    """Make these the node's GPUs, by resource name. `kubelet` is the kubelet's folder, as this machine sees it."""
    described = {}
    for name, resource in resources.items():
        vendor = name.partition("/")[0]
        mounts = {}
        for path, text in resource.mounts.items():
            program = kubelet / "gpu-programs" / vendor / path.lstrip("/").replace("/", "_")
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
            mounts[path] = f"/var/lib/kubelet/{program.relative_to(kubelet)}"
        described[name] = {
            "devices": dict(resource.devices),
            "mounts": mounts,
            "variable": VARIABLES.get(vendor, "VISIBLE_DEVICES"),
        }
    file = kubelet / FILE
    unfinished = file.with_name("unfinished.json")
    unfinished.write_text(json.dumps(described))
    unfinished.replace(file)


def remove(kubelet: Path) -> None:
    """Take the driver away."""
    (kubelet / FILE).unlink(missing_ok=True)
