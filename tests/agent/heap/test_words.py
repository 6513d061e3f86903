# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuheap.heap.model import HOST, UNKNOWN_DEVICE, Device, Frame, MemoryKind
from gpuheap.heap.words import kind_rank, kind_text, memory_text, place_text


@pytest.mark.parametrize(
    ("kind", "device", "text"),
    [
        (MemoryKind.DEVICE, Device(ordinal=3), "device memory on GPU 3"),
        (MemoryKind.DEVICE, UNKNOWN_DEVICE, "device memory on an unknown GPU"),
        (MemoryKind.PINNED_HOST, HOST, "pinned host memory"),
    ],
)
def test_memory_is_worded_by_kind_and_place(kind: MemoryKind, device: Device, text: str) -> None:
    assert memory_text(kind, device.text) == text


def test_labels_of_other_tools_are_shown_as_they_are() -> None:
    assert memory_text("hbm", "mi300x") == "hbm memory on mi300x"
    assert memory_text("", "0") == "memory on GPU 0"
    assert memory_text("", "") == ""


def test_every_kind_has_words_of_its_own() -> None:
    assert len({kind_text(kind) for kind in MemoryKind}) == len(MemoryKind)


def test_device_memory_comes_first_and_what_is_not_known_last() -> None:
    kinds = ["hbm", *MemoryKind]
    assert min(kinds, key=kind_rank) == "device"
    assert max(kinds, key=kind_rank) == "hbm"


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame(function="load", file="/srv/model.py", line=12), "load (model.py:12)"),
        (Frame(function="load", file="/srv/model.py"), "load (model.py)"),
        (Frame(function="<no stack>"), "<no stack>"),
    ],
)
def test_a_place_has_its_file_without_the_folder(frame: Frame, text: str) -> None:
    assert place_text(frame) == text
