# SPDX-License-Identifier: Apache-2.0
"""`gpuheap record` on real processes, traced through the stand-in driver."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gpuheap as package
from gpuheap.heap.model import FrameKind
from gpuheap.profile.files import read_profile
from gpuheap.profile.model import Profile
from tests.agent.cli.command import gpuheap, start
from tests.agent.cli.conftest import ALLOCATED, IN_USE, MIB, PROGRAM
from tests.standin.build import StandIn
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.bpf

ALLOCATION = "result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))"


def sums(profile: Profile) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(sample.values for sample in profile.samples), strict=True)))


def line_of(text: str) -> int:
    (number,) = [n for n, line in enumerate(PROGRAM.splitlines(), start=1) if line.strip() == text]
    return number


def test_a_command_is_recorded_from_its_first_allocation_to_its_end(
    standin: StandIn, program: Path, tmp_path: Path
) -> None:
    done = gpuheap(
        "record", "--", sys.executable, program, folder=tmp_path, environment=standin.environment()
    )
    assert (done.returncode, done.stdout) == (7, "ready\n"), "the command's own exit code and output"
    profile = read_profile(tmp_path / "gpuheap.pb.gz")
    assert sums(profile) == (*ALLOCATED, *IN_USE)
    stacks = {
        tuple(
            (frame.function, Path(frame.file).name, frame.line)
            for frame in sample.stack
            if frame.kind is FrameKind.PYTHON
        ): sample.values[3]
        for sample in profile.samples
    }
    load = ("<module>", "serve.py", line_of("load()"))
    grow = ("Cache.grow", "serve.py", line_of(ALLOCATION))
    nest = ("Cache.nest", "serve.py", line_of("self.nest(depth - 1)"))
    last = ("Cache.nest", "serve.py", line_of("self.grow(3 << 20)"))
    assert stacks == {
        (load, ("load", "serve.py", line_of("cache.grow(64 << 20)")), grow): 384 * MIB,
        (load, ("load", "serve.py", line_of("cache.nest(3)")), nest, nest, nest, last, grow): 3 * MIB,
    }


def test_what_is_printed_says_who_held_the_memory(standin: StandIn, program: Path, tmp_path: Path) -> None:
    done = gpuheap(
        "record", "--", sys.executable, program, folder=tmp_path, environment=standin.environment()
    )
    assert (
        "387 MiB of device memory on GPU 0 in use when it ended, by 7 allocations; "
        "allocated in all 643 MiB, by 11 allocations"
    ) in done.stderr
    rows = [line.split() for line in done.stderr.splitlines()]
    assert [
        "387",
        "MiB",
        "100.0",
        "387",
        "MiB",
        "100.0",
        "Cache.grow",
        f"{program}:{line_of(ALLOCATION)}",
    ] in rows
    assert ["0", "B", "0.0", "3.00", "MiB", "0.8", "Cache.nest"] in [row[:-1] for row in rows], (
        "recursion counts once"
    )
    assert "1 allocation call failed with CUDA_ERROR_OUT_OF_MEMORY (2)" in done.stderr


def test_a_program_that_freed_all_shows_who_allocated(
    standin: StandIn, program: Path, tmp_path: Path
) -> None:
    command = ["record", "--", sys.executable, str(program), "free"]
    done = gpuheap(*command, folder=tmp_path, environment=standin.environment())
    assert sums(read_profile(tmp_path / "gpuheap.pb.gz")) == (*ALLOCATED, 0, 0)
    assert "nothing was in use; the functions below are those that allocated" in done.stderr
    assert ["643", "MiB", "100.0"] in [line.split()[:3] for line in done.stderr.splitlines()]


def test_ctrl_c_shows_the_moment_at_which_it_was_pressed(
    standin: StandIn, program: Path, tmp_path: Path
) -> None:
    command = ["record", "--", sys.executable, str(program), "wait", "free"]
    with start(*command, folder=tmp_path, environment=standin.environment()) as process:
        assert process.stdout and process.stderr and process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does; the program goes on until its input ends
        said: list[str] = []
        while not any("wrote gpuheap.pb.gz" in line for line in said):
            said.append(process.stderr.readline())
        process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 7, "the command's own exit code"
    assert sums(read_profile(tmp_path / "gpuheap.pb.gz")) == (*ALLOCATED, *IN_USE), (
        "and not what it freed later"
    )
    assert any("in use when the recording was stopped" in line for line in said)


def test_a_time_limit_ends_the_recording_and_not_the_command(
    standin: StandIn, program: Path, tmp_path: Path
) -> None:
    command = ["record", "--duration", "4", "--", sys.executable, str(program), "wait"]
    with start(*command, folder=tmp_path, environment=standin.environment()) as process:
        assert process.stderr and process.stdin
        said = iter(process.stderr.readline, "")
        assert any("wrote gpuheap.pb.gz" in line for line in said)
        assert sums(read_profile(tmp_path / "gpuheap.pb.gz")) == (*ALLOCATED, *IN_USE)
        assert process.poll() is None, "the command waits for its input"
        process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 7


def test_a_running_process_is_recorded_until_it_ends(standin: StandIn, program: Path, tmp_path: Path) -> None:
    late = program.with_name("late.py")
    late.write_text(
        PROGRAM.replace("\n\nload()\n", "\n\nprint('started', flush=True)\nsys.stdin.readline()\nload()\n")
    )
    target = subprocess.Popen(
        [sys.executable, late],
        env={**os.environ, **standin.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert target.stdin and target.stdout and target.stdout.readline() == "started\n"
    with start("record", "--pid", str(target.pid), folder=tmp_path) as process:
        assert (
            process.stderr
            and process.stderr.readline() == f"gpuheap: recording pid {target.pid}; Ctrl-C ends it\n"
        )
        target.communicate("\n", timeout=DEADLINE_SECONDS)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    assert sums(read_profile(tmp_path / "gpuheap.pb.gz")) == (*ALLOCATED, *IN_USE)
    assert f"(pid {target.pid}) ran before" in errors


def test_a_command_without_gpu_memory_is_said_to_have_none(tmp_path: Path) -> None:
    done = gpuheap("record", "--", "true", folder=tmp_path)
    assert done.returncode == 0
    assert "no GPU memory was allocated" in done.stderr
    assert read_profile(tmp_path / "gpuheap.pb.gz").samples == ()


def test_many_files_may_be_open_but_not_for_the_command(tmp_path: Path) -> None:
    """The usual limit is low for the sake of programs that call select(2)."""
    shell = "ulimit -Sn; grep 'open files' /proc/$PPID/limits"
    done = subprocess.run(
        ["prlimit", "--nofile=64:2000", sys.executable, "-m", "gpuheap", "record", "--", "sh", "-c", shell],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["64", "Max", "open", "files", "2000", "2000", "files"], done.stderr
