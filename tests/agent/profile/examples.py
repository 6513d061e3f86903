# SPDX-License-Identifier: Apache-2.0
"""Profiles that the tests of this folder share."""

from gpuheap.heap.model import HOST, Device, Frame, FrameKind, MemoryKind, Process, Site, Totals
from gpuheap.heap.samples import of_recording
from gpuheap.profile.build import build
from gpuheap.profile.model import FILE_LABELS, Profile
from tests.agent.heap.values import GPU_0, GPU_1, MOMENT, PYTHON, WORKER, totals

MODULE = Frame(function="<module>", file="/srv/serve.py", line=120)
INIT = Frame(function="Engine.__init__", file="/srv/engine.py", line=31)
APPLY = Frame(function="Module._apply", file="/srv/module.py", line=804)
RESERVE = Frame(function="KVCache.reserve", file="/srv/cache.py", line=41)
UNKNOWN = Frame(function="<interpreter not supported>", kind=FrameKind.UNKNOWN)
NATIVE = Frame(function="libfoo.so+0x1234", kind=FrameKind.NATIVE)


def of(sites: dict[Site, Totals], notes: tuple[str, ...] = ()) -> Profile:
    return build(
        of_recording(sites),
        label_names=FILE_LABELS,
        time_unix_ns=MOMENT,
        duration_ns=93_500_000_000,
        notes=notes,
    )


def at(
    *stack: Frame,
    process: Process = PYTHON,
    thread_id: int = 1,
    kind: MemoryKind = MemoryKind.DEVICE,
    device: Device = GPU_0,
) -> Site:
    return Site(process=process, thread_id=thread_id, stack=stack, kind=kind, device=device)


def example() -> Profile:
    """python: 700 bytes in use (400 by recursive _apply, 200 by reserve, 100 unknown), 1,000 allocated; worker: 50."""
    return of(
        {
            at(MODULE, INIT, APPLY, APPLY): totals(400),
            at(MODULE, INIT, RESERVE): totals(500, 300),
            at(UNKNOWN, thread_id=2): totals(100),
            at(MODULE, NATIVE, process=WORKER): totals(50),
        },
        notes=("lost or blurred: ring_full, 3 times",),
    )


def several_kinds() -> Profile:
    """python: device memory, 600 bytes on GPU 0 and 100 on GPU 1; 2,000 pinned, 50 managed. worker: 40 on GPU 1."""
    return of(
        {
            at(MODULE, INIT, APPLY): totals(600),
            at(MODULE, INIT, RESERVE, device=GPU_1): totals(100),
            at(MODULE, RESERVE, kind=MemoryKind.PINNED_HOST, device=HOST): totals(2000),
            at(MODULE, RESERVE, kind=MemoryKind.MANAGED): totals(50),
            at(MODULE, NATIVE, process=WORKER, device=GPU_1): totals(40),
        }
    )


def several_builds() -> Profile:
    """Two processes that have one library, each in its own build, below a program without a build id."""
    main = Frame(function="main", file="/opt/app/serve", kind=FrameKind.NATIVE)
    builds = [
        Frame(function="foo", file="/usr/lib/libfoo.so.1", kind=FrameKind.NATIVE, build_id=build)
        for build in ("1234", "00ff")
    ]
    return of(
        {
            at(main, MODULE, builds[0]): totals(10),
            at(main, MODULE, builds[1], process=WORKER): totals(20),
        }
    )
