# SPDX-License-Identifier: Apache-2.0
"""Messages and exit codes, as a shell sees them. No test here traces anything."""

from pathlib import Path

import pytest

from gpuheap import __version__
from gpuheap.profile import html
from gpuheap.profile.encode import encode_gzip
from tests.agent.cli.command import gpuheap
from tests.agent.profile.examples import example

needs_component = pytest.mark.skipif(
    not (Path(html.__file__).parent / "assets" / "d3.min.js").exists(),
    reason="needs the flame-graph component: `make setup` fetches it",
)


@needs_component
def test_report_writes_a_page_beside_the_profile(tmp_path: Path) -> None:
    (tmp_path / "run.pb.gz").write_bytes(encode_gzip(example()))
    done = gpuheap("report", "run.pb.gz", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "gpuheap: wrote run.html: open it in a browser\n"
    assert "Engine.__init__" in (tmp_path / "run.html").read_text()


@needs_component
def test_report_writes_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.pb.gz").write_bytes(encode_gzip(example()))
    assert gpuheap("report", "run.pb.gz", "-o", "page", folder=tmp_path).returncode == 0
    assert (tmp_path / "page").exists()


def test_a_file_that_is_no_profile_is_one_line_and_code_1(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    done = gpuheap("report", "text", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuheap: error: text: not a pprof profile")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("record",),
        ("record", "--pid", "1", "--", "true"),
        ("record", "--duration", "0", "--", "true"),
        ("frobnicate",),
    ],
)
def test_wrong_usage_is_code_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = gpuheap(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "Usage: gpuheap" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("record", "--", "no-such-command"), "no-such-command: no such command"),
        (("record", "--pid", "4000000"), "pid 4000000: No such process"),
        (("record", "-o", "none/out", "--", "true"), "none/out: cannot be written"),
        (("agent", "--interval", "0"), "GPUHEAP_INTERVAL_SECONDS"),
        (("agent", "--pyroscope-url", "pyroscope"), "GPUHEAP_PYROSCOPE_URL"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_done(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = gpuheap(*arguments, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuheap: error: ")
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    assert gpuheap("--version", folder=tmp_path).stdout == f"gpuheap {__version__}\n"
