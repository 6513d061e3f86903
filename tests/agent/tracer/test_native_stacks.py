# SPDX-License-Identifier: Apache-2.0
"""Native stacks of C programs that are generated here, so that every stack is known by the bytes that it asks for."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind, Site, Totals
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, tracing
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

FIRST_SIZE = 1000

# A stack for each number: its bits choose, at each level, which of two functions calls the next one.
PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned);
int cuMemAlloc_v2(uint64_t *, size_t);
volatile int done;

%(functions)s
static void (*const remains[])(unsigned) = {%(names)s};

/* What earlier calls leave on the stack: addresses of functions, others each time. */
__attribute__((noinline)) static void litter(unsigned seed)
{
	void *volatile words[200];
	for (int i = 0; i < 200; i++) {
		seed = seed * 1664525 + 1013904223;
		words[i] = (void *)remains[(seed >> 16) %% (sizeof(remains) / sizeof(*remains))];
	}
	done = words[seed %% 200] != 0;
}

int main(int count, char **arguments)
{
	unsigned stacks, rounds, littered = atoi(arguments[1]);

	cuInit(0);
	while (scanf("%%u %%u", &stacks, &rounds) == 2) {
		for (unsigned round = 0; round < rounds; round++)
			for (unsigned number = 0; number < stacks; number++) {
				if (littered)
					litter(round * stacks + number);
				%(first)s
			}
		puts("done");
		fflush(stdout);
	}
}
"""
FUNCTION = """
__attribute__((noinline)) static void %(name)s(unsigned number)
{
	%(body)s
	done++; /* not the last thing, so that it is a call and no jump */
}
"""


def source(levels: int) -> str:
    functions, names = [], []
    for level in range(levels):
        for side in "ab":
            name = f"{side}{level}"
            body = f"if (number >> {level - 1} & 1) b{level - 1}(number); else a{level - 1}(number);"
            if level == 0:
                body = f"uint64_t address; cuMemAlloc_v2(&address, {FIRST_SIZE} + number);"
            functions.append(FUNCTION % {"name": name, "body": body})
            names.append(name)
    last = levels - 1
    first = f"if (number >> {last} & 1) b{last}(number); else a{last}(number);"
    return PROGRAM % {"functions": "".join(functions), "names": ", ".join(names), "first": first}


def expected(number: int, levels: int) -> list[str]:
    return ["main", *("ab"[number >> level & 1] + str(level) for level in reversed(range(levels)))]


@pytest.fixture(scope="module")
def tracer(standin: StandIn) -> Iterator[Tracer]:
    with tracing(standin, native_stacks=True) as tracer:
        yield tracer


@pytest.fixture(scope="module")
def build(compiled: Callable[..., Path]) -> Callable[..., Path]:
    """With a frame for each function of the source."""
    return lambda text, *flags: compiled(text, "-fno-inline", "-fno-ipa-icf", *flags)


def functions(stack: tuple[Frame, ...]) -> list[str]:
    """From `main` on."""
    names = [frame.function for frame in stack]
    return names[names.index("main") :] if "main" in names else names


def by_size(tracer: Tracer, pid: int) -> dict[int, list[tuple[Site, Totals]]]:
    """All that asked for the same number of bytes an allocation."""
    found: dict[int, list[tuple[Site, Totals]]] = {}
    for site, totals in of(tracer.read(), pid).items():
        assert totals.allocated_bytes % totals.allocated_objects == 0, "one stack has one size here"
        found.setdefault(totals.allocated_bytes // totals.allocated_objects, []).append((site, totals))
    return found


def run(program: Program, stacks: int, rounds: int) -> None:
    program.write(f"{stacks} {rounds}\n")
    assert program.line() == "done"


def named(found: dict[int, list[tuple[Site, Totals]]]) -> dict[int, list[list[str]]]:
    """The stacks of each number."""
    return {size - FIRST_SIZE: [functions(site.stack) for site, _ in sites] for size, sites in found.items()}


def loss(tracer: Tracer, reason: str) -> int:
    return tracer.read().losses[reason]


def test_119_stacks_at_full_speed_are_all_found_and_none_are_merged(
    start: Callable[..., Program], tracer: Tracer, build: Callable[[str], Path]
) -> None:
    """Without a pause between its calls: the machine decides how many a second, here more than 25,000."""
    program = start(build(source(7)), "0")
    run(program, 119, 300)
    found = by_size(tracer, program.pid)
    assert named(found) == {number: [expected(number, 7)] for number in range(119)}
    assert {totals.allocated_objects for sites in found.values() for _, totals in sites} == {300}
    assert {frame.kind for sites in found.values() for frame in sites[0][0].stack} == {FrameKind.NATIVE}


def test_what_earlier_calls_left_on_the_stack_makes_no_stack_another_one(
    start: Callable[..., Program], tracer: Tracer, build: Callable[[str], Path]
) -> None:
    """No two allocations here have the same remains. Once the agent has seen each stack, that changes nothing.

    The agent has one turn to look at all, and none meanwhile.
    """
    program = start(build(source(7)), "1")
    program.tracer = None
    run(program, 119, 1)
    tracer.poll(0)
    before = loss(tracer, "snapshot_rate")
    run(program, 119, 200)
    found = by_size(tracer, program.pid)
    assert named(found) == {number: [expected(number, 7)] for number in range(119)}
    assert {totals.allocated_objects for sites in found.values() for _, totals in sites} == {201}
    assert loss(tracer, "snapshot_rate") == before, "they were recognised in the kernel, not copied"


def test_more_new_stacks_than_may_be_copied_are_copied_when_they_come_again_and_the_rest_is_counted(
    start: Callable[..., Program], tracer: Tracer, build: Callable[[str], Path]
) -> None:
    count = 2000
    program = start(build(source(11)), "0")
    run(program, 1, 1)  # what it has mapped becomes known
    tracer.poll(0)
    missed_before = loss(tracer, "native_stack_missed")
    refused = rounds = 0
    while (now := loss(tracer, "snapshot_rate") + loss(tracer, "snapshot_ring_full")) > refused or not rounds:
        refused = now
        run(program, count, 1)
        rounds += 1
    assert refused, "this must be more than the limits, or it shows nothing"
    objects = dict.fromkeys(range(count), 0)
    missed = 0
    for site, totals in of(tracer.read(), program.pid).items():
        names = functions(site.stack)
        if names[0] != "main":
            missed += totals.allocated_objects
            continue
        number = totals.allocated_bytes // totals.allocated_objects - FIRST_SIZE
        assert names == expected(number, 11)
        assert not objects[number], "one stack is one site"
        objects[number] = totals.allocated_objects
    assert missed == loss(tracer, "native_stack_missed") - missed_before
    assert sum(objects.values()) + missed == count * rounds + 1
    assert min(objects.values()) >= 1


LIBRARY = """
int cuMemAlloc_v2(unsigned long *, unsigned long);
__attribute__((noinline)) int %(name)s(unsigned long size)
{
	unsigned long address;
	return cuMemAlloc_v2(&address, size) + 1;
}
int (*volatile chosen)(unsigned long) = %(name)s;
int run(unsigned long size) { return chosen(size) + 1; }
"""
OPENS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned);
int main(void)
{
	char path[4096];
	unsigned long size;
	void *library = 0;

	cuInit(0);
	while (scanf("%4095s %lu", path, &size) == 2) {
		if (path[0] == '/') {
			if (library)
				dlclose(library);
			library = dlopen(path, RTLD_NOW);
		}
		int (*run)(unsigned long) = dlsym(library, "run");
		if (size)
			run(size);
		printf("%p\\n", (void *)run);
		fflush(stdout);
	}
}
"""


SOON_GONE = """
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int cuInit(unsigned);
int main(int count, char **arguments)
{
	unsigned long size;
	int (*run)(unsigned long);

	puts("the driver is there");
	fflush(stdout);
	scanf("%lu", &size);
	run = dlsym(dlopen(arguments[1], RTLD_NOW), "run");
	puts("the library is there");
	fflush(stdout);
	scanf("%lu", &size);
	cuInit(0);
	run(size);
	_exit(0);
}
"""

FORKS = """
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int cuInit(unsigned);
int cuMemAlloc_v2(uint64_t *, size_t);
int run(unsigned long size)
{
	uint64_t address;

	cuInit(0);
	return cuMemAlloc_v2(&address, size);
}
int main(int count, char **arguments)
{
	unsigned long size;
	pid_t child;

	puts("the driver is there");
	fflush(stdout);
	while (scanf("%lu", &size) == 1) {
		child = 0;
		if (size > 1000) {
			run(size); /* the parent itself */
		} else if (!(child = fork())) {
			run(size);
			_exit(0);
		} else {
			waitpid(child, 0, 0);
		}
		printf("%d\\n", child);
		fflush(stdout);
	}
}
"""


@pytest.fixture(scope="module")
def opens(build: Callable[..., Path]) -> Path:
    return build(OPENS)


@pytest.fixture(scope="module")
def libraries(build: Callable[..., Path]) -> Callable[[str], Path]:
    return lambda name: build(LIBRARY % {"name": name}, "-shared", "-fPIC")


def opened(program: Program, path: Path | str, size: int) -> int:
    """Where its function `run` is. A size of 0: nothing is allocated."""
    program.write(f"{path} {size}\n")
    return int(program.line(), 16)


def below_main(tracer: Tracer, pid: int) -> dict[int, list[str]]:
    return {size: functions(sites[0][0].stack)[1:] for size, sites in by_size(tracer, pid).items()}


def test_a_library_in_the_place_of_another_has_its_own_names(
    start: Callable[..., Program], tracer: Tracer, opens: Path, libraries: Callable[[str], Path]
) -> None:
    """All addresses of the two are the same."""
    program, one, other = start(opens), libraries("one"), libraries("two")
    place = opened(program, one, 100)
    tracer.poll(0)
    assert opened(program, other, 0) == place
    tracer.poll(0)
    assert opened(program, "-", 200) == place
    assert opened(program, one, 0) == place
    tracer.poll(0)
    assert opened(program, "-", 100) == place
    assert below_main(tracer, program.pid) == {100: ["run", "one"], 200: ["run", "two"]}


def test_a_library_that_was_built_anew_under_the_same_name_has_its_new_names(
    start: Callable[..., Program],
    tracer: Tracer,
    opens: Path,
    libraries: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    program, path = start(opens), tmp_path / "plugin.so"
    shutil.copy(libraries("one"), path)
    place = opened(program, path, 100)
    tracer.poll(0)
    path.unlink()
    shutil.copy(libraries("two"), path)
    assert opened(program, path, 0) == place
    tracer.poll(0)
    opened(program, "-", 200)
    assert below_main(tracer, program.pid) == {100: ["run", "one"], 200: ["run", "two"]}


def test_a_library_that_is_opened_again_and_again_makes_nothing_void(
    start: Callable[..., Program], tracer: Tracer, opens: Path, libraries: Callable[[str], Path]
) -> None:
    program, one = start(opens), libraries("one")
    for _ in range(20):
        opened(program, one, 100)
        tracer.poll(0)
    (sites,) = by_size(tracer, program.pid).values()
    (image,) = [image for image in tracer._natives._images.values() if image.pid == program.pid]
    assert len(sites) == 1
    assert image.text == tracer._natives._last_text, "its code has had one number"


def test_a_process_that_ends_after_its_first_allocation_has_the_names_of_what_it_mapped_last(
    start: Callable[..., Program],
    tracer: Tracer,
    build: Callable[..., Path],
    libraries: Callable[[str], Path],
) -> None:
    program = start(build(SOON_GONE), libraries("one"))
    for place in ("the driver is there", "the library is there"):
        assert program.line() == place
        tracer.poll(0)
        program.write("300\n")
    assert program.end() == 0
    assert below_main(tracer, program.pid) == {300: ["run", "one"]}


@pytest.mark.parametrize("sizes", [["300"], ["3000", "300"]], ids=["parent never calls", "parent has called"])
def test_a_forked_child_that_ends_after_its_first_allocation_has_the_names_of_its_parents_code(
    sizes: list[str], start: Callable[..., Program], tracer: Tracer, build: Callable[..., Path]
) -> None:
    program = start(build(FORKS))
    assert program.line() == "the driver is there"
    tracer.poll(0)
    program.tracer = None  # nothing is looked at before the child is gone
    for size in sizes:
        program.write(f"{size}\n")
        child = int(program.line())
    assert below_main(tracer, child) == {300: ["run"]}
