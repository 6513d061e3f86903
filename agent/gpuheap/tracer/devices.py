# SPDX-License-Identifier: Apache-2.0
"""Which GPU, or slice of one, a process means by a device ordinal: the driver's rules, as NVIDIA documents them.

`uuid_of` is pure. Where the rules leave several answers it gives none. It is asked about ordinals that a process uses:
they exist, and what one would mean that the driver refuses does not matter.

* `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`: CUDA programming guide, "CUDA Environment Variables",
  https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html. What it leaves open
  (numbers are read as strtoul does, a repeated entry hides everything) is as PyTorch's torch.cuda mirrors the driver.
* MIG: user guide, "CUDA Device Enumeration": a process sees a single compute instance, the first that is available, and
  then no whole GPU, https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html.
* `NVIDIA_VISIBLE_DEVICES`: NVIDIA Container Toolkit, "GPU Enumeration",
  https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html.

Not seen from here: an MPS server that was itself started with `CUDA_VISIBLE_DEVICES` renumbers what its clients see.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"

MAX_FILE_BYTES: Final = 64 << 10
_HEX: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU: Final = re.compile(rf"GPU-{_HEX}")
_SLICE: Final = re.compile(rf"MIG-(?:{_HEX}|GPU-{_HEX}/\d{{1,3}}/\d{{1,3}})", re.ASCII)
_SLICE_INDEX: Final = re.compile(r"\d+:\d+", re.ASCII)
_NUMBER: Final = re.compile(r"([+-]?)(\d+)", re.ASCII)
_PCI: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_NODE: Final = re.compile(r"nvidia(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as the kernel module describes it. `uuid` is empty until the module knows it: at the GPU's first use."""

    uuid: str
    model: str
    bus: str
    minor: int
    """Of /dev/nvidia<minor>; -1 when not known."""
    sliced: bool = False
    """Whether it is divided into MIG instances."""


def installed_gpus(root: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[Gpu, ...]:
    """The GPUs of this machine in the order of their PCI addresses, which is nvidia-smi's; none without the module.

    One whose file cannot be read or understood keeps its place without a UUID: leaving it out would give its number to
    the next one. One that the module was told to exclude is no device for CUDA.
    """
    try:
        folders = [folder for folder in root.iterdir() if _PCI.fullmatch(folder.name)]
    except OSError:
        return ()
    found = [_gpu(folder) for folder in sorted(folders, key=lambda folder: _address(folder.name))]
    return tuple(gpu for gpu in found if gpu is not None)


def device_nodes(pid: int, proc: Path = Path("/proc")) -> frozenset[int] | None:
    """The minors of the GPU device nodes that a process has in its /dev; None when it cannot be looked at."""
    try:
        names = [entry.name for entry in (proc / str(pid) / "root/dev").iterdir()]
    except OSError:
        return None
    return frozenset(int(found[1]) for name in names if (found := _NODE.fullmatch(name)))


def uuid_of(
    ordinal: int,
    environment: Mapping[str, str],
    gpus: tuple[Gpu, ...],
    nodes: frozenset[int] | None = None,
) -> str:
    """The UUID (GPU-… or MIG-…) of what the driver calls device `ordinal` in a process; empty when that is not known.

    `environment` is that of the process when it initialised the driver, `gpus` are those of the machine in PCI order.
    `nodes` (of `device_nodes`) tells which of them a container has where its environment does not: the container
    device interface sets `NVIDIA_VISIBLE_DEVICES` to `void`, and a privileged container has every GPU.
    """
    devices = _enumerated(environment, gpus, nodes)
    chosen = environment.get(VISIBLE)
    uuids = (devices or ()) if chosen is None else _chosen(chosen, devices, gpus)
    return uuids[ordinal] if 0 <= ordinal < len(uuids) else ""


def _enumerated(
    environment: Mapping[str, str], gpus: tuple[Gpu, ...], nodes: frozenset[int] | None
) -> tuple[str, ...] | None:
    """What CUDA could show, in its order; "" for a device that is not known, None when not even their number is."""
    entries = _container_entries(environment.get(CONTAINER))
    slices = [entry for entry in entries or () if entry.startswith("MIG-") or _SLICE_INDEX.fullmatch(entry)]
    if slices:
        # One of several would be the first in the driver's own order, which is not that of the list.
        return (_slice(slices[0]),) if len(entries or ()) == 1 else None
    # A GPU that is used for the first time is known by its container's variable before the kernel module knows it.
    only = entries[0] if entries and len(entries) == 1 and _GPU.fullmatch(entries[0]) else ""
    present = _present(entries, gpus, nodes)
    if present is None:
        return (only,) if only else None
    if any(gpu.sliced for gpu in present):
        return None
    if len(present) == 1:
        return (present[0].uuid or only,)
    in_pci_order = environment.get(ORDER) == "PCI_BUS_ID" or len({gpu.model for gpu in present}) <= 1
    return tuple(gpu.uuid if in_pci_order else "" for gpu in present)


def _container_entries(value: str | None) -> list[str] | None:
    """The list in NVIDIA_VISIBLE_DEVICES; `["all"]` when it is unset, None when it says nothing about what is there."""
    if value is None:
        return ["all"]
    # vendor/class=name is how the container device interface writes a device.
    entries = [entry.strip().rpartition("=")[2] for entry in value.split(",")]
    return None if entries in ([""], ["void"]) else entries


def _present(
    entries: list[str] | None, gpus: tuple[Gpu, ...], nodes: frozenset[int] | None
) -> tuple[Gpu, ...] | None:
    """Which GPUs a process can reach, in PCI order; None when that is not known."""
    if nodes and all(gpu.minor >= 0 for gpu in gpus):
        return tuple(gpu for gpu in gpus if gpu.minor in nodes)
    if entries == ["all"]:
        return gpus
    if entries == ["none"]:
        return ()
    if entries is None:
        return gpus if len(gpus) == 1 else None
    named = [_gpu_of(entry, gpus) for entry in entries]
    return None if None in named else tuple(gpu for gpu in gpus if gpu in named)


def _gpu_of(entry: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """What the host calls it: an index, or the beginning of a UUID that no other GPU shares."""
    if entry.startswith("GPU-"):
        matching = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry.lower())]
        return matching[0] if len(matching) == 1 else None
    index = _number(entry)
    return gpus[index] if index is not None and index < len(gpus) else None


def _chosen(value: str, devices: tuple[str, ...] | None, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES makes of the devices: those before its first invalid entry, none if one is repeated."""
    found: list[str] = []
    for entry in value.split(","):
        uuid = _uuid(entry.strip(), devices, gpus)
        if uuid is None:
            break
        if uuid and uuid in found:
            return ()
        found.append(uuid)
    return tuple(found)


def _uuid(entry: str, devices: tuple[str, ...] | None, gpus: tuple[Gpu, ...]) -> str | None:
    """The device that one entry names, "" if there is one that is not known; None for an invalid entry."""
    if entry.startswith("MIG-"):
        return _slice(entry)
    if entry.startswith("GPU-"):
        return _whole(entry, devices, gpus)
    index = _number(entry)
    if index is None:
        return None
    if devices is None:
        return ""
    return devices[index] if index < len(devices) else None


def _whole(entry: str, devices: tuple[str, ...] | None, gpus: tuple[Gpu, ...]) -> str | None:
    """A GPU by the beginning of its UUID. In a container the others do not make it ambiguous."""
    reachable = devices if devices and all(devices) else [gpu.uuid for gpu in gpus]
    matching = [uuid for uuid in reachable if uuid.lower().startswith(entry.lower())]
    if len(matching) == 1:
        return "" if any(gpu.sliced for gpu in gpus if gpu.uuid == matching[0]) else matching[0]
    if matching or (reachable and all(reachable)):
        return None
    return entry if _GPU.fullmatch(entry) else ""  # not all GPUs are known: a whole UUID stands for itself


def _slice(entry: str) -> str:
    """A MIG instance by its UUID, or as drivers before 470 name it. What an abbreviation stands for is not known."""
    return entry if _SLICE.fullmatch(entry) else ""


def _number(entry: str) -> int | None:
    """The number that a text starts with, as strtoul sees it; None when it is negative, too large or not there."""
    found = _NUMBER.match(entry)
    if found is None or len(digits := found[2].lstrip("0")) > 9:
        return None
    number = int(digits or "0")
    return None if found[1] == "-" and number else number


def _gpu(folder: Path) -> Gpu | None:
    try:
        with (folder / "information").open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES).decode(errors="replace")
    except OSError:
        content = ""
    lines = [line.partition(":") for line in content.splitlines()]
    fields = {key.strip(): value.strip() for key, _, value in lines}
    if fields.get("GPU Excluded") == "Yes":
        return None
    uuid, minor = fields.get("GPU UUID", ""), fields.get("Device Minor", "")
    number = int(minor) if re.fullmatch(r"\d{1,4}", minor, re.ASCII) else -1
    return Gpu(
        uuid=uuid if _GPU.fullmatch(uuid) else "",  # question marks until the GPU is first used
        model=fields.get("Model", ""),
        bus=fields.get("Bus Location") or folder.name,
        minor=number,
        sliced=_has_slices(folder.parent.parent / f"capabilities/gpu{number}/mig"),
    )


def _has_slices(folder: Path) -> bool:
    """Whether there are GPU instances: MIG user guide, "Device Nodes and Capabilities"."""
    try:
        return any(re.fullmatch(r"gi\d+", entry.name) for entry in folder.iterdir())
    except OSError:
        return False


def _address(name: str) -> tuple[int, ...]:
    found = _PCI.fullmatch(name)
    return tuple(int(part, 16) for part in found.groups()) if found else ()
