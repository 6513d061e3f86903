# SPDX-License-Identifier: Apache-2.0
"""Python stacks of every build of CPython that this machine has or can fetch, against what each says of its own.

The program `callers.py` records, with `sys._getframe`, who calls its function `allocate`, by the size that
is allocated.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of
from tests.debian import NotObtainable
from tests.interpreters.found import NAMES, command

pytestmark = pytest.mark.bpf

CALLERS = Path(__file__).parents[2] / "standin" / "programs" / "callers.py"
NAME_BYTES = 255
"""What is kept of a name or a path."""

KEPT = 32
"""Of a deep stack, functions at each end."""

Function = tuple[str, str, int]


@pytest.fixture(params=NAMES)
def python(request: pytest.FixtureRequest) -> tuple[str, ...]:
    try:
        return command(request.param)
    except NotObtainable as reason:
        pytest.skip(f"no CPython {request.param}: {reason}")


def shown(text: str, *, is_path: bool = False) -> str:
    """How a name stands in a report. CPython keeps strings in one, two or four bytes a character (PEP 393)."""
    widest = max(map(ord, text), default=0)
    room = NAME_BYTES // (1 if widest < 256 else 2 if widest < 65536 else 4)
    if len(text) > room:
        text = "…" + text[-room:] if is_path else text[:room] + "…"
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def expected(callers: list[Function], allocation: Function) -> tuple[Function | str, ...]:
    """From the thread's root inwards; text for what stands in the place of functions."""
    stack: list[Function | str] = [
        (shown(name), shown(file, is_path=True), line) for name, file, line in reversed(callers)
    ]
    stack.append(allocation)
    if len(stack) > 2 * KEPT:
        stack[KEPT:-KEPT] = [f"<… {len(stack) - 2 * KEPT} frames cut>"]
    return tuple(stack)


def seen(stack: tuple[Frame, ...]) -> tuple[Function | str, ...]:
    return tuple(
        frame.function if frame.kind is FrameKind.UNKNOWN else (frame.function, frame.file, frame.line)
        for frame in stack
        if frame.kind is not FrameKind.NATIVE
    )


def test_every_function_that_allocates_has_the_callers_that_python_says(
    start: Callable[..., Program],
    tracer: Tracer,
    losses: Callable[[], dict[str, int]],
    python: tuple[str, ...],
) -> None:
    # The tracer learns a new interpreter's file from the first process that runs it.
    start(*python, "-c", "print(1, flush=True); input()").line()
    program = start(*python, CALLERS)
    callers = json.loads(program.line())
    source = CALLERS.read_text().splitlines()
    line = next(number for number, text in enumerate(source, start=1) if "# the allocation" in text)
    wanted: Counter[tuple[Function | str, ...]] = Counter()
    for size, functions in callers.items():
        wanted[expected(functions, ("allocate", str(CALLERS), line))] += int(size)
    sites = of(tracer.read(), program.pid)
    found: Counter[tuple[Function | str, ...]] = Counter()
    for site, totals in sites.items():
        found[seen(site.stack)] += totals.allocated_bytes
    assert found == wanted
    assert len({site.thread_id for site in sites}) > 128
    assert losses() == {"truncated_stack": 1}
