# SPDX-License-Identifier: Apache-2.0
"""The structs of bpf/gpuheap.h as the compiler laid them out (BTF), against their mirrors in Python. Needs no root."""

import ctypes
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuheap.tracer import abi
from gpuheap.tracer.tracer import OBJECT

HEADER = Path(__file__).parents[2] / "bpf" / "gpuheap.h"
PREFIXES = {"loss": "LOSS_", "event_type": "EVENT_", "stack_reason": "STACK_"}


@pytest.fixture(scope="module")
def btf() -> dict[int, dict[str, Any]]:
    if not OBJECT.exists():
        pytest.skip("needs the eBPF object: `make bpf` builds it")
    bpftool = shutil.which("bpftool", path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin")
    if bpftool is None:
        pytest.skip("needs bpftool, which prints BTF")
    done = subprocess.run([bpftool, "-j", "btf", "dump", "file", OBJECT], capture_output=True, check=True)
    return {entry["id"]: entry for entry in json.loads(done.stdout)["types"]}


@pytest.mark.parametrize("name", abi.STRUCTS)
def test_a_struct_has_the_same_fields_at_the_same_offsets_on_both_sides(
    btf: dict[int, dict[str, Any]], name: str
) -> None:
    compiled = [entry for entry in btf.values() if entry["kind"] == "STRUCT" and entry["name"] == name]
    assert len(compiled) == 1, f"the object holds no struct {name}: nothing in it uses the type"
    mirror = abi.STRUCTS[name]
    assert dict(_mirrored(mirror)) == dict(_compiled(btf, compiled[0]))
    assert ctypes.sizeof(mirror) == compiled[0]["size"]


@pytest.mark.parametrize(
    ("enum", "mirror"), [("loss", abi.Loss), ("event_type", abi.EventType), ("stack_reason", abi.StackReason)]
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


def _compiled(
    btf: dict[int, dict[str, Any]], struct: dict[str, Any]
) -> Iterator[tuple[str, tuple[int, int]]]:
    for member in struct["members"]:
        yield member["name"], (member["bits_offset"] // 8, _size(btf, member["type_id"]))


def _size(btf: dict[int, dict[str, Any]], type_id: int) -> int:
    entry = btf[type_id]
    if entry["kind"] == "ARRAY":
        return int(entry["nr_elems"]) * _size(btf, entry["type_id"])
    if "size" in entry:
        return int(entry["size"])
    return _size(btf, entry["type_id"])
