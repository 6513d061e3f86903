# SPDX-License-Identifier: Apache-2.0
"""Lines of instructions, against what each CPython says of its own code objects (`dis.findlinestarts`, `co_lines`)."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.stacks.cpython_layouts import LinesFormat
from gpuheap.stacks.line_table import line_of
from tests.debian import NotObtainable
from tests.interpreters.found import NAMES, command, version

SAYS = """
import asyncio, dis, json, sys, types
source = "def far(a):\\n" + "\\n" * 400 + "    return (a\\n +\\n 1)\\n" + '''
class C:
    x = [i
         for i in range(3)]
    def f(self):
        try:
            return {1: 2,
                    3: self.x}
        finally:
            with open("x") as y, y as z:
                for _ in z: pass
'''
found = []
def lines(code):
    if hasattr(code, "co_lines"):
        return [[start, line] for start, end, line in code.co_lines() for start in range(start, end, 2)]
    starts, all = dict(dis.findlinestarts(code)), []
    line = code.co_firstlineno
    for place in range(0, len(code.co_code), 2):
        line = starts.get(place, line)
        all.append([place, line])
    return all
def add(code):
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    found.append([table.hex(), code.co_firstlineno, lines(code)])
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            add(constant)
add(compile(source, "x", "exec"))
for module in (asyncio, json.decoder):
    add(compile(open(module.__file__).read(), "y", "exec"))
print(json.dumps(found))
"""


def written_by(version: tuple[int, int]) -> LinesFormat:
    if version < (3, 10):
        return LinesFormat.LNOTAB
    return LinesFormat.RANGES if version < (3, 11) else LinesFormat.LOCATIONS


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_has_the_line_that_its_interpreter_says(name: str) -> None:
    try:
        python = command(name)
    except NotObtainable as reason:
        pytest.skip(f"no CPython {name}: {reason}")
    said = subprocess.run([*python, "-c", SAYS], capture_output=True, text=True, check=True).stdout
    form = written_by(version(name))
    found = json.loads(said)
    assert len(found) > 8
    for table, first, lines in found:
        wanted = {place: line or 0 for place, line in lines}
        assert {place: line_of(bytes.fromhex(table), first, place, form) for place in wanted} == wanted


@given(st.binary(max_size=200), st.integers(0, 1000), st.sampled_from([*LinesFormat, 0, 99]))
def test_any_bytes_have_some_line_or_none(table: bytes, instruction: int, form: int) -> None:
    assert isinstance(line_of(table, 1, instruction, form), int)


def test_a_number_without_end_ends_the_table() -> None:
    assert line_of(bytes([0xE8]) + b"\x7f" * (1 << 20), 1, 5, LinesFormat.LOCATIONS) == 0
