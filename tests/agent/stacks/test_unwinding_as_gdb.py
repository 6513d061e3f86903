# SPDX-License-Identifier: Apache-2.0
"""The stacks of hard programs, against GDB: its answers as committed, and itself where it is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.snapshot import Snapshot
from gpuheap.stacks.symbols import Symbols
from gpuheap.stacks.unwinder import Ended, Unwinder

from .gdb_answers import ANSWERS, Frame, gdb_frames, written
from .programs import COROUTINE, PROGRAMS, C, Program
from .stopped import compiled, reading_thread, traced, waiting

ALL = pytest.mark.parametrize("name", PROGRAMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def symbols() -> Symbols:
    return Symbols()


@contextmanager
def stopped(folder: Path, name: str) -> Iterator[tuple[int, int, MemoryMap, Snapshot]]:
    """The program, the thread that waits, what is mapped, and the thread with its stack and the program's first one."""
    program = PROGRAMS.get(name) or Program(source=COROUTINE, command=C)
    path = folder / name
    if not path.exists():
        compiled(folder, name, program.source, *program.command)
    with waiting(path) as process:
        tid = reading_thread(process)
        memory_map = MemoryMap(process.pid)
        first = next(region for region in memory_map.regions if region.path == "[stack]")
        with traced(tid) as thread:
            snapshot = thread.snapshot()
            copy = thread.memory(first.begin, first.end - first.begin)
        yield process.pid, tid, memory_map, replace(snapshot, more=((first.begin, copy),))


@ALL
def test_names_are_those_that_gdb_gave(name: str, folder: Path, symbols: Symbols) -> None:
    with stopped(folder, name) as (_, _, memory_map, snapshot):
        found = Unwinder().unwind(snapshot, memory_map)
        named = [symbols.name(address, memory_map) for address in found.addresses]
    own = str(folder / name)
    frames = [
        ("" if symbol.library == own else symbol.library.rpartition("/")[2], symbol.function)
        for symbol in named
    ]
    assert found.reason is None
    assert written(PROGRAMS[name], frames) == (ANSWERS / f"{name}.txt").read_text()


@pytest.mark.gdb
@ALL
def test_addresses_are_those_that_gdb_gives_now(name: str, folder: Path) -> None:
    with stopped(folder, name) as (pid, tid, memory_map, snapshot):
        found = Unwinder().unwind(snapshot, memory_map)
        assert [hex(address) for address in found.addresses] == _calls(gdb_frames(pid, tid))


def _calls(frames: list[Frame]) -> list[str]:
    """Of a call one byte before where it returns to; of the innermost, of a signal and what it interrupted, itself."""
    exact = [
        index == 0 or frame.is_signal or frames[index - 1].is_signal for index, frame in enumerate(frames)
    ]
    return [hex(frame.address - (not is_exact)) for frame, is_exact in zip(frames, exact, strict=True)]


def test_a_signal_on_its_own_stack_hides_the_other_when_that_is_not_copied(folder: Path) -> None:
    with stopped(folder, "signal_on_its_own_stack") as (_, _, memory_map, snapshot):
        whole = Unwinder().unwind(snapshot, memory_map)
        part = Unwinder().unwind(replace(snapshot, more=()), memory_map)
    assert part.reason is Ended.OTHER_STACK
    assert part.addresses == whole.addresses[: len(part.addresses)]
    assert len(part.addresses) == 4, "stop, handler, the signal's frame, and the function that it interrupted"


def test_a_stack_that_is_larger_than_its_copy_says_so(folder: Path) -> None:
    with stopped(folder, "deep") as (_, _, memory_map, snapshot):
        whole = Unwinder().unwind(snapshot, memory_map)
        part = Unwinder().unwind(replace(snapshot, stack=snapshot.stack[:4096], more=()), memory_map)
    assert part.reason is Ended.COPY_ENDS
    assert 4 < len(part.addresses) < len(whole.addresses)
    assert part.addresses == whole.addresses[: len(part.addresses)]


def test_a_coroutine_ends_where_the_library_began_it(folder: Path, symbols: Symbols) -> None:
    """GDB takes what lies behind that for more frames; no code is there."""
    with stopped(folder, "coroutine") as (_, _, memory_map, snapshot):
        found = Unwinder().unwind(snapshot, memory_map)
        named = [symbols.name(address, memory_map) for address in found.addresses]
    assert [symbol.function for symbol in named[:-1]] == ["stop", "deeper", "body"]
    assert "libc" in named[-1].library
    assert found.reason is Ended.NO_CODE


def test_files_may_be_deleted_or_replaced_and_the_process_gone(tmp_path: Path, symbols: Symbols) -> None:
    with stopped(tmp_path, "callback") as (_, _, memory_map, snapshot):
        alive = Unwinder().unwind(snapshot, memory_map)
        (tmp_path / "callback").unlink()
        (tmp_path / "callback").write_text("another")
    gone = Unwinder().unwind(snapshot, memory_map)
    assert gone == alive
    names = [symbols.name(address, memory_map).function for address in gone.addresses]
    assert [name for name in names if name in {"stop", "compare", "sorted", "main", "_start"}] == [
        "stop",
        "compare",
        "sorted",
        "main",
        "_start",
    ]


def test_another_architecture_is_named_as_the_reason(folder: Path) -> None:
    with stopped(folder, "callback") as (_, _, memory_map, snapshot):
        found = Unwinder("aarch64").unwind(snapshot, memory_map)
    assert (found.addresses, found.reason) == ((snapshot.registers.rip,), Ended.MACHINE)
