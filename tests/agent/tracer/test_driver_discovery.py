# SPDX-License-Identifier: Apache-2.0
"""Drivers are found wherever and however processes map them. Each test copies the stand-in, so that its file is new."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuheap.heap.model import Totals
from gpuheap.tracer import Tracer
from tests.agent.tracer.conftest import Program, of, total
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf
Start = Callable[..., Program]

# Loads a driver; then, for each line of its input, makes the next allocation and says so. The last one is freed again.
PROGRAM = """
import ctypes, sys
library, *sizes = sys.argv[1:]
driver = ctypes.CDLL(library)
assert driver.cuInit(0) == 0
print("loaded", flush=True)
address = ctypes.c_uint64()
for size in sizes:
    if not sys.stdin.readline():
        break
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(size))) == 0
    print(size, flush=True)
sys.stdin.readline()
assert driver.cuMemFree_v2(address) == 0
print("freed", flush=True)
sys.stdin.readline()
"""

STUB = "int cuInit() { return 34; } int cuMemAlloc_v2() { return 34; } int cuMemFree_v2() { return 34; }"
CALLS_OF_A_STUB = """
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
print("loaded", flush=True)
sys.stdin.readline()
assert driver.cuInit(0) == driver.cuMemAlloc_v2(0, 8) == driver.cuMemFree_v2(0) == 34
print("called", flush=True)
sys.stdin.readline()
"""

# Two folders: the lower layer, and one on which a tmpfs takes the rest. The overlay is at "all" in the second.
OVERLAY = """
mount -t tmpfs none "$2"
mkdir "$2/upper" "$2/work" "$2/all"
mount -t overlay none -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/all"
shift 2
exec "$@"
"""

ONCE = """
#include <dlfcn.h>
#include <stdlib.h>
int main(int count, char **arguments)
{
    void *driver = dlopen(arguments[1], RTLD_NOW);
    int (*start)(unsigned) = dlsym(driver, "cuInit");
    int (*allocate)(unsigned long long *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    unsigned long long address;
    return start(0) || allocate(&address, strtoul(arguments[count - 1], 0, 10));
}
"""


@pytest.fixture
def library(standin: StandIn, tmp_path: Path) -> Path:
    return copied(standin, tmp_path / "somewhere" / "libcuda.so.1")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that allocates at once and ends."""
    target = tmp_path_factory.mktemp("once") / "once"
    subprocess.run(["gcc", "-x", "c", "-o", target, "-", "-ldl"], input=ONCE, text=True, check=True)
    return target


def copied(standin: StandIn, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(standin.library, to))


def command(library: Path | str, *sizes: int) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(library), *map(str, sizes)]


def isolated(script: str, *arguments: Path | str) -> list[str]:
    """In a mount namespace of its own."""
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *map(str, arguments)]


def loaded(program: Program, tracer: Tracer) -> Program:
    """Once it has the driver; what it maps before its line is known to the tracer after a reading."""
    assert program.line() == "loaded"
    tracer.read()
    return program


def allocate(program: Program, size: int) -> None:
    program.go_on()
    assert program.line() == str(size)


def seen(tracer: Tracer, pid: int) -> tuple[int, int, int, int]:
    """Bytes and objects allocated, bytes and objects freed."""
    return figures(total(of(tracer.read(), pid)))


def figures(totals: Totals) -> tuple[int, int, int, int]:
    return (
        totals.allocated_bytes,
        totals.allocated_objects,
        totals.freed_bytes,
        totals.freed_objects,
    )


def losses(tracer: Tracer, name: str) -> int:
    """Of the whole machine: others may have losses meanwhile."""
    return tracer.read().losses[name]


def assert_is_exact(start: Start, tracer: Tracer, *arguments: str) -> None:
    """Of a program that ends in `command(library, 1000, 30)`."""
    program = loaded(start(*arguments), tracer)
    allocate(program, 1000)
    allocate(program, 30)
    assert seen(tracer, program.pid) == (1030, 2, 0, 0)
    program.go_on()
    assert program.line() == "freed"
    assert seen(tracer, program.pid) == (1030, 2, 30, 1)


def test_a_driver_loaded_late_from_a_folder_that_nobody_knows_is_found(
    start: Start, tracer: Tracer, library: Path
) -> None:
    assert_is_exact(start, tracer, *command(library, 1000, 30))


def test_a_driver_from_the_search_path_of_the_program_is_found(
    start: Start, tracer: Tracer, library: Path
) -> None:
    found_by_name = ["env", f"LD_LIBRARY_PATH={library.parent}", *command("libcuda.so.1", 1000, 30)]
    assert_is_exact(start, tracer, *found_by_name)


def test_two_versions_in_two_processes_are_both_counted(
    start: Start, tracer: Tracer, standin: StandIn, tmp_path: Path
) -> None:
    one, other = (
        loaded(start(*command(copied(standin, tmp_path / name / "libcuda.so.1"), size)), tracer)
        for name, size in (("535", 100), ("570", 7))
    )
    allocate(one, 100)
    allocate(other, 7)
    assert seen(tracer, one.pid) == (100, 1, 0, 0)
    assert seen(tracer, other.pid) == (7, 1, 0, 0)


def test_two_versions_in_one_process_are_both_counted(
    start: Start, tracer: Tracer, standin: StandIn, tmp_path: Path
) -> None:
    first, second = (copied(standin, tmp_path / name / "libcuda.so.1") for name in "ab")
    both = PROGRAM.replace("driver = ", f"other = ctypes.CDLL({str(first)!r}); driver = ").replace(
        "print(size",
        "other.cuInit(0), other.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1)); print(size",
    )
    program = loaded(start(sys.executable, "-c", both, second, "20"), tracer)
    allocate(program, 20)
    assert seen(tracer, program.pid) == (21, 2, 0, 0)


def test_a_hard_link_under_another_name_is_found(start: Start, tracer: Tracer, library: Path) -> None:
    link = library.with_name("backend.plugin")
    link.hardlink_to(library)
    assert_is_exact(start, tracer, *command(link, 1000, 30))


def test_a_hard_link_to_a_known_driver_is_not_probed_twice(
    start: Start, tracer: Tracer, library: Path
) -> None:
    loaded(start(*command(library)), tracer)
    link = library.with_name("libcuda.so.1.1")
    link.hardlink_to(library)
    assert_is_exact(start, tracer, *command(link, 1000, 30))


def test_a_bind_mount_at_another_path_is_found(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.touch()
    script = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
    assert_is_exact(start, tracer, *isolated(script, library, place, *command(place, 1000, 30)))


def test_a_driver_in_a_lower_layer_is_found(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    inside = command(scratch / "all" / library.name, 1000, 30)
    assert_is_exact(start, tracer, *isolated(OVERLAY, library.parent, scratch, *inside))


def test_a_driver_in_the_upper_layer_is_found(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    inside = command(scratch / "all" / "copy.so", 1000, 30)
    script = OVERLAY.replace("shift 2", f'cp "$1/{library.name}" "$2/all/copy.so"; shift 2')
    assert_is_exact(start, tracer, *isolated(script, library.parent, scratch, *inside))


def test_one_file_below_several_overlays_is_counted_once(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    """In each container of an image the file has another identity, and on the machine yet another."""
    programs = []
    for size in (100, 20):
        (scratch := tmp_path / f"scratch{size}").mkdir()
        inside = command(scratch / "all" / library.name, size)
        programs.append(loaded(start(*isolated(OVERLAY, library.parent, scratch, *inside)), tracer))
    programs.append(loaded(start(*command(library, 3)), tracer))
    before = losses(tracer, "unknown_free")
    for program, size in zip(programs, (100, 20, 3), strict=True):
        allocate(program, size)
        program.go_on()
        assert program.line() == "freed"
        assert seen(tracer, program.pid) == (size, 1, size, 1)
    assert losses(tracer, "unknown_free") == before, (
        "with two probes at a place, the second finds nothing to free"
    )


def test_a_known_driver_copied_up_by_a_container_is_another_file(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    loaded(start(*command(library)), tracer)
    (scratch := tmp_path / "scratch").mkdir()
    inside = command(scratch / "all" / library.name, 1000, 30)
    changed = OVERLAY.replace("shift 2", f'chmod 700 "$2/all/{library.name}"; shift 2')
    assert_is_exact(start, tracer, *isolated(changed, library.parent, scratch, *inside))


def test_below_an_overlay_a_second_tracer_probes_what_the_first_has_probed(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    inside = command(scratch / "all" / library.name, 10, 5)
    program = loaded(start(*isolated(OVERLAY, library.parent, scratch, *inside)), tracer)
    with Tracer() as second:
        allocate(program, 10)
        assert seen(second, program.pid) == (10, 1, 0, 0)
    allocate(program, 5)
    assert seen(tracer, program.pid) == (15, 2, 0, 0)


def test_an_upgrade_under_a_running_tracer_leaves_neither_version_out(
    start: Start, tracer: Tracer, standin: StandIn, library: Path
) -> None:
    before = loaded(start(*command(library, 500, 60)), tracer)
    allocate(before, 500)
    copied(standin, library.with_name("new")).rename(library)
    after = loaded(start(*command(library, 7)), tracer)
    allocate(before, 60)
    allocate(after, 7)
    assert seen(tracer, before.pid) == (560, 2, 0, 0), "it still has the deleted file"
    assert seen(tracer, after.pid) == (7, 1, 0, 0)


def test_a_deleted_driver_that_a_process_still_has_is_found_by_a_new_tracer(
    standin: StandIn, library: Path
) -> None:
    program = Program(None, list(command(library, 500)), standin)
    try:
        assert program.line() == "loaded"
        library.unlink()
        with Tracer() as tracer:
            allocate(program, 500)
            assert seen(tracer, program.pid) == (500, 1, 0, 0)
    finally:
        program.kill()


def test_a_stub_that_carries_the_name_is_left_alone(start: Start, tracer: Tracer, tmp_path: Path) -> None:
    stub = tmp_path / "libcuda.so.1"
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-o", stub, "-"],
        input=STUB,
        text=True,
        check=True,
    )
    process = loaded(start(sys.executable, "-c", CALLS_OF_A_STUB, stub), tracer)
    process.go_on()
    assert process.line() == "called"
    reading = tracer.read()
    assert of(reading, process.pid) == {}
    assert process.pid not in {failed.pid for failed, *_ in reading.failures}, "a probe would count failures"
    assert process.end() == 0


def test_a_process_in_a_pid_namespace_has_the_pid_that_the_machine_gives_it(
    start: Start, tracer: Tracer, library: Path
) -> None:
    program = start("unshare", "--pid", "--fork", "--mount-proc", *command(library, 80))
    loaded(program, tracer)
    allocate(program, 80)
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    assert seen(tracer, int(children[0])) == (80, 1, 0, 0)


def test_a_driver_of_a_process_that_has_ended_is_probed_for_the_next_one(
    start: Start, tracer: Tracer, standin: StandIn, library: Path, once: Path
) -> None:
    assert Program(None, [once, library, "5"], standin).end() == 0
    tracer.read()
    second = Program(None, [once, library, "6"], standin)
    assert second.end() == 0
    assert seen(tracer, second.pid)[:2] == (6, 1), "no polling between its start and its end was needed"


def test_a_driver_that_is_gone_with_its_process_is_a_loss_and_the_next_process_is_covered(
    start: Start, tracer: Tracer, standin: StandIn, library: Path, tmp_path: Path, once: Path
) -> None:
    before = losses(tracer, "probe_failed")
    (scratch := tmp_path / "scratch").mkdir()
    inside = [str(once), str(scratch / "all" / library.name), "5"]
    gone = Program(None, list(isolated(OVERLAY, library.parent, scratch, *inside)), standin)
    assert gone.end() == 0
    assert losses(tracer, "probe_failed") > before
    assert_is_exact(start, tracer, *command(library, 1000, 30))


def test_processes_started_after_the_tracer_are_covered_from_their_first_allocation(
    tracer: Tracer, standin: StandIn, once: Path
) -> None:
    programs = {}
    for size in range(1, 101):
        program = Program(None, [once, standin.library, str(size)], standin)
        programs[program.pid] = size
        assert program.end() == 0
    reading = tracer.read()
    allocated = {pid: figures(total(of(reading, pid)))[:2] for pid in programs}
    assert allocated == {pid: (size, 1) for pid, size in programs.items()}


def test_what_a_process_did_before_its_driver_was_found_is_a_counted_gap(
    tracer: Tracer, standin: StandIn, library: Path
) -> None:
    before = losses(tracer, "driver_found_late")
    program = Program(None, list(command(library, 300, 200)), standin)
    try:
        assert program.line() == "loaded"
        allocate(program, 300)
        assert losses(tracer, "driver_found_late") > before
        assert of(tracer.read(), program.pid) == {}
        allocate(program, 200)
        assert seen(tracer, program.pid) == (200, 1, 0, 0)
    finally:
        program.kill()


def test_a_driver_is_found_although_the_records_of_new_mappings_overflowed(
    start: Start, tracer: Tracer, library: Path, tmp_path: Path
) -> None:
    flood = (
        "import mmap, sys; file = open(sys.executable, 'rb')\n"
        "for _ in range(20000): mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n"
    )
    cpu = max(os.sched_getaffinity(0))
    pinned = ["taskset", "--cpu-list", str(cpu)]
    subprocess.run([*pinned, sys.executable, "-c", flood], check=True)
    program = start(*pinned, *command(library, 9))
    program.tracer = None  # so that nothing is taken out before
    assert program.line() == "loaded"
    tracer.read()
    allocate(program, 9)
    assert seen(tracer, program.pid) == (9, 1, 0, 0)
