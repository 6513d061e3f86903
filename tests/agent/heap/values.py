# SPDX-License-Identifier: Apache-2.0
"""Made-up readings: short constructors, and strategies that draw any reading a tracer could give."""

from hypothesis import strategies as st

from gpuheap.heap.model import (
    UNKNOWN_DEVICE,
    Device,
    Frame,
    MemoryKind,
    OutOfMemory,
    Pool,
    PoolTotals,
    Process,
    Reading,
    Site,
    Totals,
)

MOMENT = 1_796_000_000_000_000_000
PYTHON = Process(pid=4711, start_ns=10, name="python")
WORKER = Process(pid=4712, start_ns=20, name="worker")
GPU_0 = Device(ordinal=0, uuid="GPU-aaaa")
GPU_1 = Device(ordinal=1, uuid="GPU-bbbb")


def frames(*names: str) -> tuple[Frame, ...]:
    """Frames from the root to the leaf: `load` or `load:12`, in the file app.py."""
    parts = [name.partition(":") for name in names]
    return tuple(Frame(function=function, file="app.py", line=int(line or 0)) for function, _, line in parts)


def site(
    *names: str,
    process: Process = PYTHON,
    thread_id: int = 1,
    kind: MemoryKind = MemoryKind.DEVICE,
    device: Device = GPU_0,
    call: str = "",
) -> Site:
    return Site(
        process=process, thread_id=thread_id, stack=frames(*names), kind=kind, device=device, call=call
    )


def totals(allocated: int, freed: int = 0, at_exit: int = 0) -> Totals:
    """Bytes; each allocation has 10 of them. `freed` includes `at_exit`."""
    return Totals(
        allocated_bytes=allocated,
        allocated_objects=allocated // 10,
        freed_bytes=freed,
        freed_objects=freed // 10,
        released_at_exit_bytes=at_exit,
        released_at_exit_objects=at_exit // 10,
    )


def reading(
    sites: dict[Site, Totals],
    *,
    exited: frozenset[Process] = frozenset(),
    joined_late: frozenset[Process] = frozenset(),
    pools: dict[Pool, PoolTotals] | None = None,
    out_of_memory: tuple[OutOfMemory, ...] = (),
    failures: dict[tuple[Process, int], int] | None = None,
    losses: dict[str, int] | None = None,
) -> Reading:
    return Reading(
        taken_unix_ns=MOMENT,
        totals=sites,
        exited=exited,
        joined_late=joined_late,
        pools=pools or {},
        out_of_memory=out_of_memory,
        failures=failures or {},
        losses=losses or {"ring_full": 0},
    )


_frames = st.builds(
    Frame, function=st.sampled_from(["a", "b", "c", "d"]), file=st.just("f.py"), line=st.integers(0, 3)
)
stacks = st.lists(_frames, max_size=6).map(tuple)
sites = st.builds(
    Site,
    process=st.sampled_from([PYTHON, WORKER, Process(pid=4711, start_ns=99, name="python")]),
    thread_id=st.integers(1, 2),
    stack=stacks,
    kind=st.sampled_from(MemoryKind),
    device=st.sampled_from([GPU_0, GPU_1, UNKNOWN_DEVICE]),
)


@st.composite
def events(draw: st.DrawFn) -> list[dict[Site, Totals]]:
    """What happens in three intervals at each of some sites; nothing is freed that was not allocated before."""
    result: list[dict[Site, Totals]] = [{}, {}, {}]
    for one in draw(st.lists(sites, unique=True, max_size=8)):
        held = 0
        for interval in result:
            allocated = draw(st.integers(0, 50)) * 10
            freed = draw(st.integers(0, (held + allocated) // 10)) * 10
            held += allocated - freed
            interval[one] = totals(allocated, freed)
    return result
