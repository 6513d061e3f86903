# SPDX-License-Identifier: Apache-2.0
"""What makes the GPUs of our pools usable: device plugins, and checks that nothing starts before."""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from components.device_plugins import AMD_IMAGE, NVIDIA_IMAGE

from .base import Part, refuse

IMAGE: Final = r"^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$"
VERSION: Final = r"^\d+(\.\d+){0,3}$"


class PluginImage(Part):
    nvidia: str = Field(
        default=NVIDIA_IMAGE, pattern=IMAGE, description="<registry>/<name>:<tag>", examples=[NVIDIA_IMAGE]
    )
    amd: str = Field(
        default=AMD_IMAGE, pattern=IMAGE, description="<registry>/<name>:<tag>", examples=[AMD_IMAGE]
    )


class CheckImage(Part):
    """NVIDIA's runtime brings nvidia-smi into any image that has a shell and glibc; amd-smi must be in the image."""

    nvidia: str = Field(
        default="docker.io/library/ubuntu:24.04",
        pattern=IMAGE,
        description="an image with sh, sed, sort, grep, head and cut",
        examples=["docker.io/library/ubuntu:24.04"],
    )
    amd: str = Field(
        default="docker.io/rocm/dev-ubuntu-24.04:6.4.1",
        pattern=IMAGE,
        description="an image with sh, sed, sort, grep, head, cut and amd-smi",
        examples=["docker.io/rocm/dev-ubuntu-24.04:6.4.1"],
    )


class MinimumDriver(Part):
    """Nodes with an older one fail their check."""

    nvidia: str = Field(
        default="535.0", pattern=VERSION, description="a driver's version, in quotes", examples=["550.0"]
    )
    amd: str = Field(
        default="6.7", pattern=VERSION, description="a version of amdgpu, in quotes", examples=["6.10"]
    )


class Devices(Part):
    plugins: list[Literal["nvidia", "amd"]] = Field(
        default=["nvidia", "amd"],
        description="nvidia, amd: for whose pools we bring the device plugin; not for pools of NVIDIA's with driver: "
        "None, whose operator brings its own",
        examples=[["nvidia"]],
    )
    plugin_image: PluginImage = PluginImage()
    readiness: bool = Field(
        default=True, description="whether nodes are checked before workloads start", examples=[True]
    )
    check_image: CheckImage = CheckImage()
    minimum_driver: MinimumDriver = MinimumDriver()

    @model_validator(mode="after")
    def _checks_are_made(self) -> Self:
        for name, key in (("check_image", "checkImage"), ("minimum_driver", "minimumDriver")):
            if not self.readiness and name in self.model_fields_set:
                raise refuse(
                    "nodes are not checked",
                    at=("devices", key),
                    given=f"{key} with readiness: false",
                    allowed=f"{key} with readiness: true",
                    remove=True,
                )
        return self
