# SPDX-License-Identifier: Apache-2.0
"""How processes, memory kinds, devices and functions are called in sentences. Pure; numbers are in `quantities`.

Kinds and devices come as the text of labels, too, from any pprof file: a text that is not ours is shown as it is.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from gpuheap.heap.model import HOST, UNKNOWN_DEVICE, Frame, MemoryKind, Process

MEMORY: Final[Mapping[str, str]] = {
    MemoryKind.DEVICE: "device memory",
    MemoryKind.MANAGED: "managed memory",
    MemoryKind.PINNED_HOST: "pinned host memory",
    MemoryKind.ARRAY: "array memory",
    MemoryKind.GRAPH: "graph memory",
    MemoryKind.IMPORTED: "imported memory",
}
KIND_RANK: Final[Mapping[str, int]] = {kind.value: rank for rank, kind in enumerate(MemoryKind)}
"""The order in which kinds are shown: what is device memory and nothing else comes first."""


def process_text(process: Process) -> str:
    return f"{process.name} (pid {process.pid})"


def kind_text(kind: str) -> str:
    """`device memory`; of an empty kind nothing."""
    return MEMORY.get(kind, f"{kind} memory" if kind else "")


def kind_rank(kind: str) -> int:
    """For sorting: kinds that are not ours come last."""
    return KIND_RANK.get(kind, len(KIND_RANK))


def device_text(device: str) -> str:
    """From a device's text: `GPU 0`, `unknown GPU`; of the host nothing, as the kind says it."""
    if device in ("", HOST.text):
        return ""
    if device == UNKNOWN_DEVICE.text:
        return "unknown GPU"
    return f"GPU {device}" if device.isdecimal() else device


def memory_text(kind: str, device: str) -> str:
    """`device memory on GPU 0`; nothing where neither is known."""
    where = on_device(device)
    return f"{kind_text(kind) or 'memory'}{where}" if where else kind_text(kind)


def on_device(device: str) -> str:
    """` on GPU 0`, ` on an unknown GPU`; of the host nothing."""
    where = device_text(device)
    article = "an " if device == UNKNOWN_DEVICE.text else ""
    return f" on {article}{where}" if where else ""


def place_text(frame: Frame) -> str:
    """`load (model.py:12)`, without the folder."""
    return function_text(frame.function, frame.file, frame.line)


def function_text(function: str, file: str, line: int) -> str:
    name = PurePath(file).name
    return f"{function} ({name}:{line})" if name and line else f"{function} ({name})" if name else function
