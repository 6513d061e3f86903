# SPDX-License-Identifier: Apache-2.0
"""Whole stacks of CPythons without symbols, whose functions optimisers have cut into parts and put into one another."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuheap.heap.model import FrameKind
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, tracing
from tests.debian import NotObtainable
from tests.interpreters.found import command
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

NAMES = ("3.13-debian", "3.14-debian", "3.15-debian", "3.14-standalone")
CALLERS = Path(__file__).parents[2] / "standin" / "programs" / "callers.py"


@pytest.fixture(scope="module")
def tracer(standin: StandIn) -> Iterator[Tracer]:
    with tracing(standin, native_stacks=True) as tracer:
        yield tracer


@pytest.mark.parametrize("name", NAMES)
def test_each_function_has_its_place_among_the_native_frames(
    name: str, tracer: Tracer, standin: StandIn
) -> None:
    try:
        python = command(name)
    except NotObtainable as reason:
        pytest.skip(f"no CPython {name}: {reason}")
    first = Program(tracer, [*python, "-c", "print(1, flush=True); input()"], standin)
    first.line()  # an interpreter's file is known from the first process that runs it
    program = Program(tracer, [*python, CALLERS], standin)
    callers = json.loads(program.line())
    sites = [site for site in of(tracer.read(), program.pid) if site.stack[0].kind is FrameKind.NATIVE]
    assert len(sites) == len(of(tracer.read(), program.pid)) > len(callers) / 2
    for site in sites:
        kinds = [frame.kind for frame in site.stack]
        innermost = len(kinds) - 1 - kinds[::-1].index(FrameKind.PYTHON)
        libraries = [Path(frame.code_file).name for frame in site.stack[innermost + 1 :]]
        assert site.stack[innermost].function == "allocate"
        assert any(library.startswith("libffi") or "python" in library for library in libraries)
    first.kill()
    program.kill()
