# SPDX-License-Identifier: Apache-2.0
"""Programs whose stacks are hard to unwind, each stopped at its innermost frame. Only data: source and compiler."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    source: str
    command: tuple[str, ...]


DEEP: Final = """
STOP
#define NOINLINE __attribute__((noinline))
namespace shapes {
template <class T, class Function> NOINLINE long each(const T &first, Function function)
{
    long result = function(first);
    return result + (long)first;
}
struct Shape { virtual long area(int) const = 0; };
template <class T> struct Square final : Shape {
    NOINLINE long area(int depth) const override;
};
NOINLINE long nested(const Shape &shape, int depth)
{
    volatile char room[500];
    room[0] = (char)depth;
    long result = depth ? nested(shape, depth - 1) : shape.area(depth);
    return result + room[0];
}
template <class T> long Square<T>::area(int depth) const
{
    return each(T(depth), [=](T number) NOINLINE { return stop() + (long)number; }) + 1;
}
NOINLINE int operator+(const Shape &shape, int depth) { return (int)nested(shape, depth) * 2; }
}
int main()
{
    using shapes::operator+;
    return (shapes::Square<double>() + 40) + 1;
}
"""

VARIABLE: Final = """
#include <alloca.h>
#include <string.h>
STOP
__attribute__((noinline)) long aligned(int n)
{
    volatile char line[64] __attribute__((aligned(64)));
    memset((void *)line, n, sizeof(line));
    return stop() + line[n];
}
__attribute__((noinline)) long variable(int n)
{
    char *room = alloca(n * 100 + 5);
    memset(room, n, n * 100);
    return aligned(n) + room[7];
}
__attribute__((noinline)) long array(int n)
{
    volatile int numbers[n];
    numbers[n - 1] = n;
    return variable(n) + numbers[n - 1];
}
int main(int count, char **arguments) { (void)arguments; return (int)array(count + 3); }
"""

CLEANUP: Final = """
STOP
struct Cleanup { __attribute__((noinline)) ~Cleanup() { stop(); } };
__attribute__((noinline)) void thrower(int n) { if (n == 0) throw 7; thrower(n - 1); asm volatile(""); }
__attribute__((noinline)) void between(int n) { Cleanup cleanup; thrower(n); }
__attribute__((noinline)) int catcher(int n) { try { between(n); } catch (int number) { return number; } return 0; }
int main() { return catcher(3) + 1; }
"""

CAUGHT: Final = """
STOP
__attribute__((noinline)) void thrower(int n) { if (n == 0) throw 7; thrower(n - 1); asm volatile(""); }
__attribute__((noinline)) long handled(int number) { return number + stop(); }
__attribute__((noinline)) long catcher(int n)
{
    try { thrower(n); } catch (int number) { return handled(number); }
    return 0;
}
int main() { return (int)catcher(3) + 1; }
"""

TERMINATED: Final = """
#include <exception>
STOP
__attribute__((noinline)) void handler() { stop(); __builtin_trap(); }
__attribute__((noinline)) void thrower(int n) { if (n == 0) throw 7; thrower(n - 1); asm volatile(""); }
int main() { std::set_terminate(handler); thrower(3); return 0; }
"""

_SIGNAL: Final = """
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
STOP
static void handler(int number) { (void)number; stop(); _Exit(0); }
__attribute__((noinline)) static void install(int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGILL, &action, 0);
}
"""

SIGNAL: Final = (
    _SIGNAL
    + """
__attribute__((noinline)) int interrupted(int n)
{
    volatile int numbers[100];
    numbers[n] = n;
    __asm__ volatile("ud2");
    return numbers[n];
}
int main(int count, char **arguments) { (void)arguments; install(0); return interrupted(count) + 1; }
"""
)

FIRST_INSTRUCTION: Final = (
    _SIGNAL
    + """
__attribute__((naked, noinline)) static void before(void) { __asm__("ret; nop; nop"); }
/* Right behind another function: one byte before its first is not its own. */
__attribute__((naked, noinline)) static void at_once(void) { __asm__("ud2; ret"); }
__attribute__((noinline)) int caller(int n) { before(); at_once(); return n; }
int main(int count, char **arguments) { (void)arguments; install(0); return caller(count) + 1; }
"""
)

ALTERNATE_STACK: Final = (
    _SIGNAL
    + """
__attribute__((noinline)) int overflown(int n) { __asm__ volatile("ud2"); return n; }
int main(int count, char **arguments)
{
    stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
    (void)arguments;
    sigaltstack(&other, 0);
    install(SA_ONSTACK);
    return overflown(count) + 1;
}
"""
)

THREAD: Final = """
#include <pthread.h>
STOP
__attribute__((noinline)) static long deeper(long n)
{
    volatile long room = n;
    return n ? deeper(n - 1) + room : stop();
}
static void *work(void *argument) { return (void *)(deeper((long)argument) + 1); }
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, (void *)5);
    return pthread_join(thread, 0);
}
"""

CALLBACK: Final = """
#include <stdlib.h>
STOP
static int compare(const void *left, const void *right)
{
    return (int)stop() + *(const int *)left - *(const int *)right;
}
__attribute__((noinline)) int sorted(int *numbers) { qsort(numbers, 3, sizeof(*numbers), compare); return numbers[0]; }
int main(void) { int numbers[] = {2, 1, 3}; return sorted(numbers) + 1; }
"""

CONSTRUCTOR: Final = """
STOP
__attribute__((constructor)) static void early(void) { stop(); __asm__ volatile(""); }
int main(void) { return 0; }
"""

COROUTINE: Final = """
#include <ucontext.h>
STOP
static ucontext_t outside, inside;
static char room[65536] __attribute__((aligned(16)));
__attribute__((noinline)) static int deeper(int n) { return (int)stop() + n; }
static void body(void)
{
    int depth = 3;
    __asm__ volatile("" : "+r"(depth));
    room[0] = (char)deeper(depth);
}
int main(void)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = room;
    inside.uc_stack.ss_size = sizeof(room);
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    return swapcontext(&outside, &inside);
}
"""

C: Final = ("gcc", "-O2", "-fomit-frame-pointer")
CXX: Final = ("g++", "-O2", "-fomit-frame-pointer")

PROGRAMS: Final[dict[str, Program]] = {
    "deep": Program(source=DEEP, command=CXX),
    "deep_clang": Program(source=DEEP, command=("clang++", "-O2")),
    "variable": Program(source=VARIABLE, command=C),
    "variable_clang": Program(source=VARIABLE, command=("clang", "-O2")),
    "cleanup": Program(source=CLEANUP, command=CXX),
    "terminated": Program(source=TERMINATED, command=(*CXX, "-fno-optimize-sibling-calls")),
    "caught": Program(source=CAUGHT, command=CXX),
    "signal": Program(source=SIGNAL, command=C),
    "signal_static": Program(source=SIGNAL, command=(*C, "-static")),
    "signal_at_first_instruction": Program(source=FIRST_INSTRUCTION, command=C),
    "signal_on_its_own_stack": Program(source=ALTERNATE_STACK, command=C),
    "thread": Program(source=THREAD, command=(*C, "-pthread")),
    "callback": Program(source=CALLBACK, command=C),
    "callback_static": Program(source=CALLBACK, command=(*C, "-static")),
    "callback_static_pie": Program(source=CALLBACK, command=(*C, "-static-pie")),
    "callback_fixed": Program(source=CALLBACK, command=(*C, "-no-pie")),
    "callback_without_header": Program(source=CALLBACK, command=(*C, "-Wl,--no-eh-frame-hdr")),
    "constructor": Program(source=CONSTRUCTOR, command=C),
}
