# SPDX-License-Identifier: Apache-2.0
"""Sentences on failures whose holdings are counted by hand."""

from collections.abc import Mapping
from dataclasses import replace

from gpuheap.heap.model import HOST, UNKNOWN_DEVICE, Frame, FrameKind, Holding, MemoryKind, OutOfMemory, Site
from gpuheap.heap.out_of_memory import out_of_memory_notes
from tests.agent.heap.values import GPU_1, MOMENT, site

GIB = 1 << 30
MANAGED, PINNED = MemoryKind.MANAGED, MemoryKind.PINNED_HOST
HELD = {
    site("main:3", "build_cache:40"): 5 * GIB,
    site("main:3", "build_cache:41"): 2 * GIB + GIB // 2,
    site("main:3", "load_weights:12"): 3 * GIB + GIB // 2,
    site("main:3", "other_gpu:1", device=GPU_1): 60 * GIB,
    site("main:3", "staging:7", kind=PINNED, device=HOST): 40 * GIB,
    site("main:3", "unified:8", kind=MANAGED): 50 * GIB,
}


def failed(
    asking: Site, held: Mapping[Site, int], *, asked: int = 2 * GIB, exact: bool = True
) -> OutOfMemory:
    holdings = {one: Holding(bytes=count, objects=1) for one, count in held.items()}
    return OutOfMemory(site=asking, asked_bytes=asked, at_unix_ns=MOMENT, holdings=holdings, exact=exact)


def test_a_failure_says_who_asked_and_who_held_the_gpus_memory() -> None:
    (note,) = out_of_memory_notes([failed(site("main:3", "load_weights:12"), HELD)])
    assert note == (
        "python (pid 4711): out of memory on GPU 0: asked for 2.00 GiB in load_weights (app.py:12); "
        "held 11.0 GiB then, most by build_cache (app.py:40) 7.50 GiB"
    )


def test_a_failure_names_who_called_the_libraries_that_ask() -> None:
    malloc = Frame(function="cudaMalloc", file="/srv/libcudart.so.13", kind=FrameKind.NATIVE)
    below = {replace(one, stack=(*one.stack, malloc)): count for one, count in HELD.items()}
    asking = site("main:3", "load_weights:12")
    (note,) = out_of_memory_notes([failed(replace(asking, stack=(*asking.stack, malloc)), below)])
    assert "in load_weights (app.py:12)" in note
    assert "most by build_cache (app.py:40) 7.50 GiB" in note


def test_managed_memory_competes_with_what_is_on_the_gpu() -> None:
    (note,) = out_of_memory_notes([failed(site("unify:5", kind=MANAGED), HELD)])
    assert "asked for 2.00 GiB of managed memory in unify (app.py:5)" in note
    assert "held 11.0 GiB of device memory then, most by build_cache" in note


def test_pinned_memory_competes_with_pinned_memory() -> None:
    (note,) = out_of_memory_notes([failed(site("pin:5", kind=PINNED, device=HOST), HELD)])
    assert note == (
        "python (pid 4711): out of memory: asked for 2.00 GiB of pinned host memory in pin (app.py:5); "
        "held 40.0 GiB then, most by staging (app.py:7) 40.0 GiB"
    )


def test_where_the_gpu_is_not_known_all_gpus_are_told() -> None:
    (note,) = out_of_memory_notes([failed(site("load:5", device=UNKNOWN_DEVICE), HELD)])
    assert "out of memory on an unknown GPU:" in note
    assert note.endswith("held 71.0 GiB on all GPUs then, most by other_gpu (app.py:1) 60.0 GiB")


def test_bytes_on_an_unknown_gpu_are_not_dropped() -> None:
    held = {site("load:5"): GIB, site("load:6", device=UNKNOWN_DEVICE): 3 * GIB}
    (note,) = out_of_memory_notes([failed(site("load:5"), held)])
    assert note.endswith(
        "held 1.00 GiB then, most by load (app.py:5) 1.00 GiB; 3.00 GiB more on an unknown GPU"
    )


def test_holdings_that_are_not_of_the_moment_are_about_right() -> None:
    (note,) = out_of_memory_notes([failed(site("load:5"), HELD, exact=False)])
    assert "held about 11.0 GiB then" in note


def test_a_process_that_held_nothing_is_said_to_have_held_nothing() -> None:
    (note,) = out_of_memory_notes([failed(site("load:5"), {})])
    assert note.endswith("asked for 2.00 GiB in load (app.py:5); nothing was held then")


def test_a_stack_that_is_not_known_is_named_so() -> None:
    (note,) = out_of_memory_notes([failed(site(), HELD)])
    assert "asked for 2.00 GiB in <no stack>; held" in note


def test_the_last_three_failures_are_told_in_their_order() -> None:
    notes = out_of_memory_notes([failed(site("f:1"), {}, asked=n) for n in (1, 2, 3, 4, 5)])
    assert [note.split("asked for ")[1].split(" in")[0] for note in notes] == ["3 B", "4 B", "5 B"]
