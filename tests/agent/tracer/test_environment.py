# SPDX-License-Identifier: Apache-2.0
"""The variables of real processes, as they set them themselves."""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuheap.tracer.environment import MAX_VARIABLES, environment_of
from tests.waiting import DEADLINE_SECONDS

STARTED_WITH = {"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "all", "API_TOKEN": "secret"}
SEEN_AT_START = {"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "all"}

PROGRAM = r"""
/* SPDX-License-Identifier: Apache-2.0 */
/* Changes its environment in the way that its argument names, says so, and waits for its input to end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OWN_COPY
extern char **environ;
#endif

static void *keep_changing(void *unused)
{
	char name[32];

	for (unsigned int i = 0;; i++) {
		setenv("CUDA_VISIBLE_DEVICES", i % 2 ? "1" : "2", 1);
		snprintf(name, sizeof(name), "VARIABLE_%u", i % 200);
		if (i % 400 < 200)
			setenv(name, "x", 1);
		else
			unsetenv(name);
	}
	return unused;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;
	char name[32];

	if (!strcmp(how, "set")) {
		setenv("CUDA_VISIBLE_DEVICES", "3", 1);
	} else if (!strcmp(how, "clear")) {
		clearenv();
	} else if (!strcmp(how, "many")) {
		for (int i = 0; i < atoi(argv[2]); i++) {
			snprintf(name, sizeof(name), "VARIABLE_%d", i);
			setenv(name, "x", 1);
		}
		setenv("CUDA_VISIBLE_DEVICES", "3", 1);
	} else if (!strcmp(how, "long")) {
		char *value = malloc(1 << 20);

		memset(value, '0', (1 << 20) - 1);
		value[(1 << 20) - 1] = 0;
		setenv("CUDA_LONG", value, 1);
	} else if (!strcmp(how, "changing")) {
		pthread_create(&thread, NULL, keep_changing, NULL);
#ifdef OWN_COPY
	} else if (!strcmp(how, "nowhere")) {
		environ = (char **)0xdead000;
	} else if (!strcmp(how, "strings-nowhere")) {
		static char *strings[] = { (char *)0xdead000, (char *)-1, (char *)"CUDA_VISIBLE_DEVICES=2", NULL };

		environ = strings;
	} else if (!strcmp(how, "twice")) {
		static char *strings[] = { "CUDA_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=3", "CUDA_NOTHING", NULL };

		environ = strings;
#endif
	}
	puts("ready");
	fflush(stdout);
	return getchar() == EOF ? 0 : 1;
}
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program and waits for its first line."""
    programs: list[subprocess.Popen[str]] = []

    def start(*command: str | Path, **variables: str) -> "subprocess.Popen[str]":
        program = subprocess.Popen(
            command,
            env=STARTED_WITH | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        assert program.stdout
        assert select.select([program.stdout], [], [], DEADLINE_SECONDS)[0], "the program says nothing"
        assert program.stdout.readline() == "ready\n"
        return program

    yield start
    for program in programs:
        program.kill()
        program.communicate()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds the program with a compiler's name and options; skips the test where they do not work."""
    folder = tmp_path_factory.mktemp("programs")
    source = folder / "program.c"
    source.write_text(PROGRAM)

    def compiled(compiler: str, *options: str) -> Path:
        target = folder / "".join(filter(str.isalnum, compiler + "".join(options)))
        if target.exists():
            return target
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        command = [compiler, "-O1", "-pthread", *options, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and "-static" in options:
            pytest.skip("needs the static C library (libc.a)")
        assert done.returncode == 0, done.stderr
        return target

    return compiled


def python(start: Start, body: str, interpreter: str | Path = sys.executable) -> int:
    end = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"
    return start(interpreter, "-c", f"import os\n{body}{end}").pid


def test_a_variable_that_python_sets_at_run_time_is_seen(start: Start) -> None:
    pid = python(
        start, "os.environ['CUDA_VISIBLE_DEVICES'] = '3,0'; os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'"
    )
    assert environment_of(pid) == {
        "CUDA_VISIBLE_DEVICES": "3,0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }


def test_a_variable_that_python_deletes_is_gone(start: Start) -> None:
    pid = python(start, "del os.environ['CUDA_VISIBLE_DEVICES']")
    assert environment_of(pid) == {"NVIDIA_VISIBLE_DEVICES": "all"}


def test_other_variables_are_nobodys_business(start: Start) -> None:
    assert (
        environment_of(python(start, "os.environ['CUDA'] = os.environ['PASSWORD'] = 'secret'"))
        == SEEN_AT_START
    )


def test_after_exec_the_variables_are_those_of_the_new_program(start: Start) -> None:
    pid = python(
        start,
        "import sys\n"
        "if 'CUDA_LAUNCH_BLOCKING' not in os.environ:\n"
        "    os.environ['CUDA_VISIBLE_DEVICES'] = '7'\n"
        "    os.execve(sys.executable, sys.orig_argv, {'CUDA_LAUNCH_BLOCKING': '1'})\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '2'",
    )
    assert environment_of(pid) == {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "2"}


BUILDS = [
    pytest.param(("gcc",), False, id="the library's variable"),
    pytest.param(("gcc", "-DOWN_COPY", "-fPIC", "-pie"), False, id="the library's, by name"),
    pytest.param(("gcc", "-DOWN_COPY", "-fPIE", "-pie"), True, id="a copy"),
    pytest.param(("gcc", "-DOWN_COPY", "-fno-pie", "-no-pie"), True, id="a copy at a fixed address"),
    pytest.param(("musl-gcc",), False, id="musl"),
    pytest.param(("musl-gcc", "-DOWN_COPY", "-fno-pie", "-no-pie"), True, id="a copy of musl's"),
]


@pytest.mark.parametrize(("build", "copied"), BUILDS)
def test_the_variable_is_found_however_the_program_is_linked(
    start: Start, compiled: Callable[..., Path], build: tuple[str, ...], copied: bool
) -> None:
    program = compiled(*build)
    listed = subprocess.run(["readelf", "-rW", program], capture_output=True, text=True, check=True).stdout
    assert any("R_X86_64_COPY" in line and "environ" in line for line in listed.splitlines()) == copied
    assert environment_of(start(program, "set").pid) == SEEN_AT_START | {"CUDA_VISIBLE_DEVICES": "3"}


@pytest.mark.parametrize(("build", "copied"), BUILDS)
def test_an_environment_that_was_cleared_is_empty(
    start: Start, compiled: Callable[..., Path], build: tuple[str, ...], copied: bool
) -> None:
    assert environment_of(start(compiled(*build), "clear").pid) == {}


def test_a_static_program_has_what_it_was_started_with(start: Start, compiled: Callable[..., Path]) -> None:
    assert environment_of(start(compiled("gcc", "-static"), "set").pid) == SEEN_AT_START


@pytest.mark.parametrize(("build", "copied"), BUILDS[:4])
def test_a_program_started_by_its_loader_keeps_what_it_was_started_with(
    start: Start, compiled: Callable[..., Path], build: tuple[str, ...], copied: bool
) -> None:
    program = start("/lib64/ld-linux-x86-64.so.2", compiled(*build))
    assert environment_of(program.pid) == SEEN_AT_START


def test_a_library_that_was_deleted_is_still_read(
    start: Start, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to open a file by its mapping")
    program = compiled("gcc")
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    original = next(line.split()[2] for line in listed.splitlines() if "libc.so.6" in line)
    copy = shutil.copy(original, tmp_path / "libc.so.6")
    pid = start(program, "set", LD_LIBRARY_PATH=str(tmp_path)).pid
    Path(copy).unlink()
    assert environment_of(pid) == SEEN_AT_START | {"CUDA_VISIBLE_DEVICES": "3"}


def test_a_process_that_is_gone_has_no_variables(start: Start, compiled: Callable[..., Path]) -> None:
    program = start(compiled("gcc"))
    program.kill()
    program.wait(DEADLINE_SECONDS)
    assert environment_of(program.pid) == {}


def test_a_process_that_ended_but_was_not_waited_for_has_no_variables(
    start: Start, compiled: Callable[..., Path]
) -> None:
    program = start(compiled("gcc"))
    program.kill()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert environment_of(program.pid) == {}


OWN_COPY = ("gcc", "-DOWN_COPY", "-fPIE", "-pie")


def test_as_many_variables_as_allowed_are_read(start: Start, compiled: Callable[..., Path]) -> None:
    found = environment_of(start(compiled("gcc"), "many", str(MAX_VARIABLES - len(STARTED_WITH))).pid)
    assert found == SEEN_AT_START | {"CUDA_VISIBLE_DEVICES": "3"}


def test_more_variables_than_allowed_leave_those_of_the_start(
    start: Start, compiled: Callable[..., Path]
) -> None:
    found = environment_of(start(compiled("gcc"), "many", str(MAX_VARIABLES + 1)).pid)
    assert found == SEEN_AT_START


def test_a_value_without_an_end_in_sight_is_left_out(start: Start, compiled: Callable[..., Path]) -> None:
    assert environment_of(start(compiled("gcc"), "long").pid) == SEEN_AT_START


def test_a_pointer_to_nowhere_leaves_those_of_the_start(start: Start, compiled: Callable[..., Path]) -> None:
    assert environment_of(start(compiled(*OWN_COPY), "nowhere").pid) == SEEN_AT_START


def test_strings_that_are_nowhere_are_passed_over(start: Start, compiled: Callable[..., Path]) -> None:
    found = environment_of(start(compiled(*OWN_COPY), "strings-nowhere").pid)
    assert found == {"CUDA_VISIBLE_DEVICES": "2"}


def test_of_a_name_that_is_there_twice_the_first_counts(start: Start, compiled: Callable[..., Path]) -> None:
    assert environment_of(start(compiled(*OWN_COPY), "twice").pid) == {"CUDA_VISIBLE_DEVICES": "2"}


def test_a_program_that_keeps_changing_its_variables_never_shows_one_that_it_had_not(
    start: Start, compiled: Callable[..., Path]
) -> None:
    pid = start(compiled("gcc"), "changing").pid
    answers = [environment_of(pid) for _ in range(200)]
    assert all(answer["CUDA_VISIBLE_DEVICES"] in {"1", "2"} for answer in answers)
    assert all(answer["NVIDIA_VISIBLE_DEVICES"] == "all" for answer in answers)
