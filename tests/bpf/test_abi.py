# SPDX-License-Identifier: Apache-2.0
"""The structs of bpf/gpuheap.h as the compiler laid them out (BTF), against their mirrors in Python. Needs no root."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuheap.tracer import abi, calls
from gpuheap.tracer.tracer import OBJECT
from tests.bpf.btf import Types

HEADER = Path(__file__).parents[2] / "bpf" / "gpuheap.h"
PREFIXES = {
    "loss": "LOSS_",
    "event_type": "EVENT_",
    "stack_reason": "STACK_",
    "device": "DEVICE_",
    "call": "CALL_",
    "frame_base": "BASE_",
    "frame_flags": "FRAME_",
}


@pytest.fixture(scope="module")
def types() -> Types:
    if not OBJECT.exists():
        pytest.skip("needs the eBPF object: `make bpf` builds it")
    return Types(OBJECT)


@pytest.mark.parametrize("name", abi.STRUCTS)
def test_a_struct_has_the_same_fields_at_the_same_offsets_on_both_sides(types: Types, name: str) -> None:
    compiled = types.structs(name)
    assert len(compiled) == 1, f"the object holds no struct {name}: nothing in it uses the type"
    mirror = abi.STRUCTS[name]
    members = {label: (offset // 8, types.size(number)) for label, number, offset in compiled[0].members}
    assert dict(_mirrored(mirror)) == members
    assert ctypes.sizeof(mirror) == compiled[0].size


@pytest.mark.parametrize(
    ("enum", "mirror"),
    [
        ("loss", abi.Loss),
        ("event_type", abi.EventType),
        ("stack_reason", abi.StackReason),
        ("device", abi.Device),
        ("call", calls.Call),
        ("frame_base", abi.FrameBase),
        ("frame_flags", abi.FrameFlag),
    ],
)
def test_an_enum_has_the_same_values_on_both_sides(enum: str, mirror: Any, tmp_path: Path) -> None:
    """Enums that no variable has are not in BTF: the compiler is asked."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    printed = "".join(f'printf("{member.name} %d\\n", {PREFIXES[enum]}{member.name});' for member in mirror)
    source, program = tmp_path / "values.c", tmp_path / "values"
    source.write_text(f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {printed} return 0; }}')
    subprocess.run(["gcc", "-o", program, source], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    values = dict(line.split() for line in printed.splitlines())
    assert values == {member.name: str(member.value) for member in mirror}


def _mirrored(mirror: type[ctypes.Structure]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, kind in mirror._fields_:  # type: ignore[misc]
        yield name, (getattr(mirror, name).offset, ctypes.sizeof(kind))


def test_kinds_have_the_same_order_on_both_sides() -> None:
    body = HEADER.read_text().partition("enum kind {")[2].partition("}")[0]
    names = re.findall(r"KIND_(\w+),", body)
    assert names == [kind.name for kind in calls.KINDS.values()] + ["NOTHING"]


def test_every_probed_function_is_named_once() -> None:
    listed = re.findall(r"X\((\d+), (\w+)\)", HEADER.read_text())
    assert [(int(number), name) for number, name in listed] == [
        (call.value, call.name) for call in calls.Call
    ]
