# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from gpuheap.profile.files import OutputFile
from gpuheap.profile.model import ProfileError


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.pb.gz"
    with OutputFile(path) as out:
        assert not path.exists()
        out.commit(b"all of it")
    assert path.read_bytes() == b"all of it"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.pb.gz"
    path.write_bytes(b"old")

    def fail_meanwhile() -> None:
        with OutputFile(path):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_meanwhile()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with OutputFile(tmp_path / "out") as out:
            out.commit(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_place_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be written: No such file or directory"):
        OutputFile(tmp_path / "none" / "out")
    with pytest.raises(ProfileError, match="it is a folder"):
        OutputFile(tmp_path)
