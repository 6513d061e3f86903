# SPDX-License-Identifier: Apache-2.0
"""Gives the devices of the kernel side their names: (image, ordinal) to ordinal and UUID."""

from gpuheap.heap.model import HOST, UNKNOWN_DEVICE, Device

from . import abi
from .devices import Gpu, device_nodes, installed_gpus, uuid_of
from .environment import environment_of


class Gpus:
    """What each image's environment said when it first called the driver: from then on its numbering is fixed."""

    def __init__(self, installed: tuple[Gpu, ...] | None = None) -> None:
        self._installed = installed_gpus() if installed is None else installed
        self._seen: dict[int, tuple[dict[str, str], frozenset[int] | None]] = {}
        self._devices: dict[tuple[int, int], Device] = {}

    def look_at(self, image: int, pid: int) -> None:
        self._seen[image] = (environment_of(pid), device_nodes(pid))

    def device(self, image: int, ordinal: int) -> Device:
        if ordinal == abi.Device.HOST:
            return HOST
        if ordinal < 0:
            return UNKNOWN_DEVICE
        if (image, ordinal) not in self._devices:
            environment, nodes = self._seen.get(image, ({}, None))
            if any(not gpu.uuid for gpu in self._installed):
                self._installed = installed_gpus()  # the module learns a GPU's UUID at its first use
            uuid = uuid_of(ordinal, environment, self._installed, nodes)
            self._devices[image, ordinal] = Device(ordinal=ordinal, uuid=uuid)
        return self._devices[image, ordinal]

    def forget(self, images: set[int]) -> None:
        self._seen = {image: seen for image, seen in self._seen.items() if image not in images}
        self._devices = {key: device for key, device in self._devices.items() if key[0] not in images}
