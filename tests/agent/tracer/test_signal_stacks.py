# SPDX-License-Identifier: Apache-2.0
"""Allocations in signal handlers: on the stack that the signal interrupts, and on one of their own (sigaltstack(2))."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, tracing
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long *, unsigned long);

#define SIZE (256 << 10)
static void *context;
static int handles;
static unsigned long size;
volatile int done;

__attribute__((noipa)) static void allocate(void)
{
	unsigned long address;
	cuMemAlloc_v2(&address, size);
	done++;
}
__attribute__((noipa)) static void second(int number) { (void)number; allocate(); done++; }
__attribute__((noipa)) static void first(int number)
{
	(void)number;
	if (handles == 2)
		raise(SIGUSR2);
	else
		allocate();
	done++;
}
__attribute__((noipa)) static void interrupted(int depth)
{
	volatile char room[500];
	room[depth] = 1;
	if (depth)
		interrupted(depth - 1);
	else
		__asm__ volatile("ud2; ud2; nop" ::: "memory");
	done += room[depth];
}
/* Goes on behind the instruction that is none. */
static void skipping(int number, siginfo_t *info, void *data)
{
	(void)info;
	first(number);
	((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP] += 4;
	done++;
}
__attribute__((noipa)) static void run(const char *where, int depth)
{
	/* Where the first stack is far above, and right below the thread's own. */
	static char fixed[SIZE];
	stack_t other = { .ss_sp = fixed, .ss_size = SIZE };
	struct sigaction action;

	if (!strcmp(where, "mapped"))
		other.ss_sp = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(where, "disarmed"))
		other.ss_flags = 1U << 31; /* SS_AUTODISARM */
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = skipping;
	action.sa_flags = SA_SIGINFO;
	if (strcmp(where, "none")) {
		sigaltstack(&other, 0);
		action.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGILL, &action, 0);
	action.sa_handler = second;
	action.sa_flags &= SA_ONSTACK;
	sigaction(SIGUSR2, &action, 0);
	interrupted(depth);
	other.ss_flags = SS_DISABLE;
	sigaltstack(&other, 0);
	done++;
}
struct job { const char *where; int depth; };
static void *work(void *argument)
{
	struct job *job = argument;
	cuCtxSetCurrent(context);
	run(job->where, job->depth);
	return 0;
}
int main(void)
{
	char where[32], thread[32];
	int depth;

	cuInit(0);
	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	while (scanf("%31s %31s %d %d %lu", thread, where, &handles, &depth, &size) == 5) {
		struct job job = { where, depth };
		pthread_t other;
		if (!strcmp(thread, "thread")) {
			pthread_create(&other, 0, work, &job);
			pthread_join(other, 0);
		} else {
			run(where, depth);
		}
		puts("done");
		fflush(stdout);
	}
}
"""


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled(PROGRAM, "-pthread")


@pytest.fixture(scope="module")
def tracer(standin: StandIn) -> Iterator[Tracer]:
    with tracing(standin, native_stacks=True) as tracer:
        yield tracer


@pytest.fixture(scope="module")
def running(tracer: Tracer, standin: StandIn, program: Path) -> Iterator[Program]:
    running = Program(tracer, [program], standin)
    yield running
    running.kill()


def own_functions(running: Program, tracer: Tracer, job: str) -> list[str]:
    """The program's own on the stack of an allocation, and what stands for what is not known."""
    before = of(tracer.read(), running.pid)
    running.write(f"{job} 4096\n")
    assert running.line() == "done"
    ((site, _),) = of(tracer.read(), running.pid).items() - before.items()
    own = [frame for frame in site.stack if frame.file.endswith("/program") or not frame.file]
    return [frame.function.partition(".")[0] for frame in own]


@pytest.mark.parametrize("handlers", [1, 2])
@pytest.mark.parametrize("where", ["none", "fixed", "mapped"])
@pytest.mark.parametrize("thread", ["main", "thread"])
def test_a_handler_has_the_stack_that_its_signal_has_interrupted(
    thread: str, where: str, handlers: int, running: Program, tracer: Tracer
) -> None:
    found = own_functions(running, tracer, f"{thread} {where} {handlers} 10")
    root = ["_start", "main"] if thread == "main" else ["work"]
    in_handlers = ["skipping", "first", *["second"] * (handlers - 1), "allocate"]
    assert found == [*root, "run", *["interrupted"] * 11, *in_handlers]


def test_a_stack_of_its_own_that_is_disarmed_hides_the_other_and_says_so(
    running: Program, tracer: Tracer
) -> None:
    """The kernel has forgotten where it is (SS_AUTODISARM), so it is not known to be one."""
    before = tracer.read().losses["native_stack_cut"]
    found = own_functions(running, tracer, "main disarmed 1 0")
    assert found == ["<outer native frames not known>", "interrupted", "skipping", "first", "allocate"]
    assert tracer.read().losses["native_stack_cut"] == before + 1
