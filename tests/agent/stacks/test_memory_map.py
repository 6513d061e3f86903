# SPDX-License-Identifier: Apache-2.0
"""What lies where in a process, and its files: whatever becomes of the process and of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuheap.stacks.mapped_files import MappedFiles
from gpuheap.stacks.memory_map import MemoryMap, NoFile, Region
from gpuheap.stacks.unwinder import Ended, Unwinder

from .programs import CALLBACK
from .stopped import compiled, reading_thread, traced, waiting


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), "program", CALLBACK, "gcc", "-O2")


def code_of(memory_map: MemoryMap, path: Path) -> Region:
    return next(region for region in memory_map.regions if region.path == str(path) and region.executable)


def test_files_are_opened_once_and_closed_with_the_last_map(program: Path) -> None:
    files = MappedFiles()
    with waiting(program) as one, waiting(program) as other:
        maps = [MemoryMap(one.pid, files), MemoryMap(other.pid, files)]
        assert code_of(maps[0], program).file is code_of(maps[1], program).file
    assert len(files) == 3, "the program, the C library and the dynamic linker"
    maps.clear()
    assert len(files) == 0


def test_files_beyond_the_limit_are_a_reason(program: Path) -> None:
    with waiting(program) as process, traced(reading_thread(process)) as thread:
        memory_map = MemoryMap(process.pid, MappedFiles(limit=1))
        found = Unwinder().unwind(thread.snapshot(), memory_map)
    assert {region.file for region in memory_map.regions if region.executable} >= {NoFile.TOO_MANY}
    assert found.reason is Ended.NO_FILE


def test_what_is_mapped_later_is_found_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; sys.stdin.read(1); import _bz2; sys.stdin.read(1)"
    process = subprocess.Popen([sys.executable, "-u", "-c", script], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        memory_map = MemoryMap(process.pid)
        before = {region.begin for region in memory_map.regions}
        process.stdin.write(b"1")
        process.stdin.flush()
        later: list[int] = []
        while not later:
            assert process.poll() is None
            maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            later = [int(line.partition("-")[0], 16) for line in maps if "_bz2" in line and " r-xp " in line]
        assert later[0] not in before
        assert memory_map.find(later[0]) is None
        region = memory_map.find_anew(later[0])
        assert region is not None and "_bz2" in region.path and not isinstance(region.file, NoFile)
        looks: list[int] = []
        monkeypatch.setattr(memory_map, "refresh", lambda: looks.append(1))
        for _ in range(3):
            assert memory_map.find_anew(0x10) is None
        assert len(looks) == 1, "an address that leads nowhere is looked for once"
    finally:
        process.kill()
        process.communicate()


def test_another_program_in_the_same_process_changes_nothing(tmp_path: Path, program: Path) -> None:
    """The map is that of the image it was made for."""
    source = (
        '#include <unistd.h>\nSTOP\nint main(void) { stop(); return execl("/bin/cat", "cat", (char *)0); }\n'
    )
    with waiting(compiled(tmp_path, "first", source, "gcc")) as process:
        memory_map = MemoryMap(process.pid)
        before = memory_map.regions
        assert process.stdin is not None
        process.stdin.write(b"1")
        process.stdin.flush()
        while b"cat" not in Path(f"/proc/{process.pid}/comm").read_bytes():
            assert process.poll() is None
        assert not memory_map.refresh()
        assert memory_map.regions == before


def test_what_a_forked_process_can_no_longer_show_is_as_where_it_was_forked_from(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with waiting(program) as process:
        before = MemoryMap(process.pid)
        _refusing(monkeypatch, "map_files", "/root")
        alone, forked = MemoryMap(process.pid), MemoryMap(process.pid, before=before)
    assert code_of(alone, program).file is NoFile.GONE
    assert code_of(forked, program).file is code_of(before, program).file
    assert MemoryMap(process.pid, before=before).regions == before.regions


def test_a_part_of_the_mappings_is_not_taken_for_all(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends while they are read."""
    with waiting(program) as process:
        memory_map = MemoryMap(process.pid)
        before, maps = memory_map.regions, Path(f"/proc/{process.pid}/maps").read_bytes()
        answers = iter([maps[: maps.index(b"\n") + 1]])
        monkeypatch.setattr(memory_map._maps, "read", lambda *_: next(answers, b""))
        assert not memory_map.refresh()
    assert memory_map.regions == before


def _without_map_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an agent without the right to use it."""
    _refusing(monkeypatch, "map_files")


def _refusing(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    plain = os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:
        if any(part in str(path) for part in parts):
            raise PermissionError(1, "Operation not permitted", path)
        return plain(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)


def test_without_the_right_to_map_files_the_name_leads_to_the_file(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_map_files(monkeypatch)
    with waiting(program) as process:
        assert not isinstance(code_of(MemoryMap(process.pid), program).file, NoFile)


@pytest.mark.parametrize("replacement", ["another program", "a pipe", "a folder", "nothing"])
def test_what_has_taken_the_name_of_a_mapped_file_is_not_taken_for_it(
    replacement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiled(tmp_path, "program", CALLBACK, "gcc", "-O2")
    _without_map_files(monkeypatch)
    with waiting(program) as process:
        program.unlink()
        if replacement == "another program":
            compiled(tmp_path, "program", CALLBACK, "gcc", "-O1")
        elif replacement == "a pipe":
            os.mkfifo(program)
        elif replacement == "a folder":
            program.mkdir()
        assert code_of(MemoryMap(process.pid), program).file is NoFile.GONE


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a mount namespace")
def test_a_program_that_only_another_mount_namespace_has_is_unwound(tmp_path: Path, program: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    steps = f"mount -t tmpfs none {hidden} && cp {program} {hidden}/program && exec {hidden}/program"
    with waiting("unshare", "--mount", "sh", "-c", steps) as process:
        memory_map = MemoryMap(process.pid)
        with traced(reading_thread(process)) as thread:
            found = Unwinder().unwind(thread.snapshot(), memory_map)
    assert not (hidden / "program").exists()
    assert code_of(memory_map, hidden / "program").file is not NoFile.GONE
    assert found.reason is None


def test_a_process_that_is_not_there_has_no_map() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert MemoryMap(ended.pid).regions == ()
