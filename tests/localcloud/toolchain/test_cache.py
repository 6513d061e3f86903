# SPDX-License-Identifier: Apache-2.0
"""The cache: entries are complete or absent, and one set-up runs at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.toolchain import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpuheap"


def test_a_relative_xdg_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "gpuheap"


def test_an_entry_is_made_once(own_cache: Path) -> None:
    made: list[Path] = []

    def fill(folder: Path) -> None:
        made.append(folder)
        (folder / "tool").write_text("x")

    first = cache.provide(own_cache / "tool-1", fill)
    second = cache.provide(own_cache / "tool-1", fill)
    assert first == second == own_cache / "tool-1"
    assert (first / "tool").read_text() == "x"
    assert len(made) == 1
    assert made[0] != first, "the entry must not be seen under its name before it is complete"


def test_a_failed_entry_leaves_nothing(own_cache: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.provide(own_cache / "tool-1", fill)
    assert list(own_cache.iterdir()) == []


def test_what_a_killed_set_up_left_is_not_part_of_the_next(own_cache: Path) -> None:
    (own_cache / ".unfinished-tool-1").mkdir(parents=True)
    (own_cache / ".unfinished-tool-1" / "half").write_text("x")
    folder = cache.provide(own_cache / "tool-1", lambda folder: (folder / "tool").touch())
    assert [path.name for path in folder.iterdir()] == ["tool"]


def test_the_hash_changes_with_content_name_and_settings(tmp_path: Path) -> None:
    one, other = tmp_path / "go.mod", tmp_path / "go.sum"
    one.write_text("a")
    other.write_text("b")
    hashes = [
        cache.content_hash([one, other]),
        cache.content_hash([one]),
        cache.content_hash([one, other], "flag"),
    ]
    before = cache.content_hash([other, one])
    one.write_text("c")
    assert before == hashes[0], "the order in which files are named does not matter"
    assert len({*hashes, cache.content_hash([one, other])}) == 4


def test_a_second_set_up_waits_and_says_so(own_cache: Path) -> None:
    program = "from localcloud.toolchain.cache import lock\nwith lock(lambda: print('waits', flush=True)): print('in')"
    with cache.lock(lambda: pytest.fail("nobody else holds the lock")):
        second = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "waits\n"
        assert second.poll() is None
    with second:
        assert second.stdout.read() == "in\n"
    assert second.returncode == 0
