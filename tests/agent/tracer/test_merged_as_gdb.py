# SPDX-License-Identifier: Apache-2.0
"""Whole stacks, Python and native frames in one, against GDB: its answers as committed, and itself where it is."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.tracer import Tracer, TracerOptions
from tests.agent.tracer.conftest import Program, of
from tests.debian import NotObtainable
from tests.standin.build import StandIn

from .merged.answers import ANSWERS, NAMES, Entry, Programs, Stacks, gdb_stacks, without_part, written

pytestmark = pytest.mark.bpf

LIVE = ("native", "embedded", "sub-interpreter", "3.10-pyenv", "3.11-pyenv", "3.13-pyenv")
"""Each way in which an interpreter keeps its frames."""


@pytest.fixture(scope="module")
def programs(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"), standin)


@pytest.fixture(scope="module")
def seen_by_gdb(programs: Programs, standin: StandIn, request: pytest.FixtureRequest) -> dict[str, Stacks]:
    """Before anyone probes the driver: two breakpoints in one function are one too many."""
    wanted = any(item.get_closest_marker("gdb") and not _is_skipped(item) for item in request.session.items)
    found = {}
    for name in LIVE if wanted else ():
        with suppress(NotObtainable):
            found[name] = gdb_stacks(programs, name, standin)
    return found


def _is_skipped(item: pytest.Item) -> bool:
    return any(True for _ in item.iter_markers("skip"))


@pytest.fixture(scope="module")
def tracer(standin: StandIn, programs: Programs, seen_by_gdb: dict[str, Stacks]) -> Iterator[Tracer]:
    assert seen_by_gdb is not None
    commands = []
    for name in NAMES:
        try:
            commands.append(programs.command(name)[0][0])
        except NotObtainable:
            continue
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(standin.folder))
        with Tracer(TracerOptions(commands=tuple(commands))) as tracer:
            yield tracer


@pytest.fixture(scope="module")
def run(tracer: Tracer, programs: Programs, standin: StandIn) -> Callable[[str], Stacks]:
    def run(name: str) -> Stacks:
        try:
            command, environment = programs.command(name)
        except NotObtainable as reason:
            pytest.skip(str(reason))
        program = Program(tracer, list(command), standin, environment)
        titles = {int(size): title for size, (title, _) in json.loads(program.line()).items()}
        found = {
            totals.allocated_bytes: (
                titles.get(totals.allocated_bytes, "of no known size"),
                list(map(entry, site.stack)),
            )
            for site, totals in of(tracer.read(), program.pid).items()
        }
        program.kill()
        return found

    return run


@pytest.fixture(scope="module")
def traced(run: Callable[[str], Stacks]) -> Callable[[str], Stacks]:
    """Each program once."""
    return cache(run)


def entry(frame: Frame) -> Entry:
    if frame.kind is not FrameKind.NATIVE:
        return Entry(function=frame.function, file=frame.file, line=frame.line)
    source = frame.file if frame.library else ""
    return Entry(function=frame.function, file=source, line=frame.line, library=frame.code_file)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_stack_is_the_one_that_gdb_gave(name: str, traced: Callable[[str], Stacks]) -> None:
    assert written(traced(name)) == (ANSWERS / f"{name}.txt").read_text()


@pytest.mark.gdb
@pytest.mark.parametrize("name", LIVE)
def test_each_frame_is_the_one_that_gdb_gives_now(
    name: str, traced: Callable[[str], Stacks], seen_by_gdb: dict[str, Stacks]
) -> None:
    found, expected = traced(name), seen_by_gdb[name]
    assert found.keys() == expected.keys()
    for size, (title, entries) in expected.items():
        seen = found[size][1]
        assert [shown(one, where.is_certain) for one, where in zip(seen, entries, strict=True)] == [
            shown(one, one.is_certain) for one in entries
        ], title


def shown(entry: Entry, is_certain: bool) -> tuple[str, str, int, str]:
    """Without the name of a function where GDB only guesses it.

    A folder of compilation that is a relative one, as Debian builds its C library, GDB puts before file names twice.
    """
    library = os.path.realpath(entry.library) if entry.library else ""
    function = entry.function if not library else without_part(entry.function) if is_certain else ""
    file = entry.file if entry.file.startswith("/") else Path(entry.file).name
    return function, file, entry.line, library


@pytest.mark.parametrize("name", ["native", "3.13-pyenv"])
def test_stacks_of_two_runs_are_the_same(
    name: str, traced: Callable[[str], Stacks], run: Callable[[str], Stacks]
) -> None:
    """Wherever programs and libraries were loaded."""
    assert run(name) == traced(name)
