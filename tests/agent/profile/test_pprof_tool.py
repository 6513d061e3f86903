# SPDX-License-Identifier: Apache-2.0
"""The files as Google's own pprof reads them; expected numbers are counted by hand in `examples.example`."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuheap.profile.decode import decode
from gpuheap.profile.encode import encode_gzip
from tests.agent.profile.examples import example, several_builds, several_kinds

pytestmark = pytest.mark.skipif(
    shutil.which("go") is None, reason="needs `go tool pprof`: there is no go on PATH"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "example.pb.gz"
    path.write_bytes(encode_gzip(example()))
    return path


def pprof(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["go", "tool", "pprof", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_pprof_reads_types_values_labels_and_stacks(file: Path) -> None:
    text = pprof("-raw", file)
    assert "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]" in text
    assert "PeriodType: space bytes" in text
    assert "Comment: lost or blurred: ring_full, 3 times" in text
    samples = re.search(
        r"^ +50 +500 +20 +200: ([\d ]+)\n +device:\[0\] gpu:\[GPU-aaaa\] kind:\[device\]"
        r" pid:\[4711\] process:\[python\] thread:\[1\]",
        text,
        re.MULTILINE,
    )
    assert samples is not None, text
    names = [
        re.search(rf"^ +{number}: 0x0 M=\d+ (\S+) ", text, re.MULTILINE) for number in samples[1].split()
    ]
    assert [name and name[1] for name in names] == ["KVCache.reserve", "Engine.__init__", "<module>"], (
        "leaf first"
    )


@pytest.mark.parametrize(
    ("function", "own", "total"),
    [
        ("Module._apply", 400, 400),
        ("Engine.__init__", 0, 600),
        ("<module>", 0, 650),
        ("libfoo.so+0x1234", 50, 50),
    ],
)
def test_pprof_counts_self_and_total_as_a_person_does(
    file: Path, function: str, own: int, total: int
) -> None:
    top = pprof("-top", "-nodecount=100", "-nodefraction=0", "-unit=B", file)
    (line,) = [line.split() for line in top.splitlines() if line.endswith(function)]
    assert (line[0].removesuffix("B"), line[3].removesuffix("B")) == (str(own), str(total))


def test_pprof_can_choose_a_process_by_its_label(file: Path) -> None:
    assert "Total samples = 750B" in pprof("-top", "-unit=B", file)
    assert "Showing nodes accounting for 50B" in pprof("-top", "-unit=B", "-tagfocus=process=worker", file)


def test_pprof_can_choose_a_kind_of_memory_by_its_label(tmp_path: Path) -> None:
    path = tmp_path / "kinds.pb.gz"
    path.write_bytes(encode_gzip(several_kinds()))
    assert "Showing nodes accounting for 740B" in pprof("-top", "-unit=B", "-tagfocus=kind=device", path)


def test_pprof_shows_each_mapped_file_with_its_build(tmp_path: Path) -> None:
    path = tmp_path / "native.pb.gz"
    path.write_bytes(encode_gzip(several_builds()))
    text = pprof("-raw", path)
    mappings = re.findall(r"^\d+: 0x0/0x0/0x0 (\S+) *(\w*) +\[FN\]", text, re.MULTILINE)
    assert sorted(mappings) == [
        ("/opt/app/serve", ""),
        ("/usr/lib/libfoo.so.1", "00ff"),
        ("/usr/lib/libfoo.so.1", "1234"),
        ("[python]", ""),
    ]
    assert "File: serve" in pprof("-top", path), "the program, not the first library"


def test_builds_are_read_back() -> None:
    stacks = [sample.stack for sample in decode(encode_gzip(several_builds()), name="x").samples]
    assert [[frame.build_id for frame in stack] for stack in stacks] == [["", "", "1234"], ["", "", "00ff"]]
