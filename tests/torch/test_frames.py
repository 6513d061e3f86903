# SPDX-License-Identifier: Apache-2.0
"""Native frames of PyTorch's stacks: where threads begin, which functions of PyTorch ask, what of it is shown.

Names of functions are those that PyTorch's own headers declare and `nm -C` lists.
"""

from pathlib import Path
from typing import Final

import pytest

from gpuheap.heap.model import Frame, FrameKind, MemoryKind, Site
from gpuheap.stacks.display import TORCH, Detail, shown
from tests.torch.conftest import Runs
from tests.torch.run import Allocator, Step, is_ours, last_python, passes

pytestmark = [pytest.mark.bpf, pytest.mark.torch]

MIB: Final = 1 << 20
WORKSPACE: Final = 2 * 4096 * 1024 + 8 * 16 * 1024
PRODUCTS: Final = (192 + 112 + 2 * 16) * MIB + 8 * WORKSPACE
"""Gradients of the four weights that products are with, 48 + 16 + 64 + 64 MiB, and of what came in: of width 2048 three
times, of 8192 once, for 8 × 256 tokens. The gradient of the sum is one number: it is written out, 16 MiB, for both
products of the last layer. Each product has its work space."""

CALLS: Final = {
    Allocator.CACHING: ("cudaMalloc", "cuMemAlloc_v2"),
    Allocator.EXPANDABLE_SEGMENTS: ("c10::cuda::CUDACachingAllocator::", "cuMemCreate"),
    Allocator.CUDA_MALLOC_ASYNC: ("cudaMallocAsync", "cuMemAllocAsync"),
    Allocator.NONE: ("cudaMalloc", "cuMemAlloc_v2"),
}
"""What the innermost function's name begins with, and the driver's function that it calls."""


def library(frame: Frame) -> str:
    return Path(frame.code_file).name


def has(site: Site, *names: str) -> bool:
    """Whether functions whose names begin so are on the stack, in this order from the root."""
    rest = iter(site.stack)
    return all(any(frame.function.startswith(name) for frame in rest) for name in names)


def test_each_stack_reaches_from_the_threads_start_to_the_driver(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    leaf, call = CALLS[allocator]
    step = steps["backward"]
    for site in step.sites():
        assert site.stack[0].function == ("_start" if site.thread_id == step.main_thread else "clone3")
        assert site.stack[-1].function.startswith(leaf)
        assert site.call == call


def test_native_and_python_functions_stand_in_the_order_of_their_calls(steps: dict[str, Step]) -> None:
    for site in filter(passes("weights"), steps["weights"].sites()):
        assert has(
            site,
            "Py_RunMain",
            "<module>",
            "Run.weights",
            "Module.to.<locals>.convert",
            "torch::autograd::THPVariable_to(",
            "at::native::_to_copy(",
            "at::detail::empty_strided_cuda(",
        )


def test_gradients_are_those_of_the_function_that_autograd_runs_on_its_thread(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    step = steps["backward"]
    names = ("torch::autograd::Engine::thread_main(", "torch::autograd::generated::MmBackward0::apply(")
    products = step.allocated_where(lambda site: site.thread_id != step.main_thread and has(site, *names))
    if allocator in (Allocator.NONE, Allocator.CUDA_MALLOC_ASYNC):
        assert products == PRODUCTS
    else:
        assert products <= PRODUCTS, "what the forward pass gave back is used again"


def test_a_backward_function_in_python_stands_between_autograds_engine_and_the_allocation(
    steps: dict[str, Step],
) -> None:
    for site in filter(passes("gate"), steps["backward"].sites()):
        assert has(
            site,
            "torch::autograd::Engine::evaluate_function(",
            "torch::autograd::PyNode::apply(",
            "BackwardCFunction.apply",
            "Gate.backward",
            "at::_ops::empty_memory_format::call(",
        )


def test_what_is_shown_first_has_no_function_of_the_interpreter(steps: dict[str, Step]) -> None:
    for site in steps["backward"].sites():
        plain = shown(site.stack, Detail.PLAIN)
        assert plain
        assert not any("python3" in library(frame) for frame in plain)
        assert [frame for frame in plain if frame.kind is FrameKind.PYTHON] == [
            frame for frame in site.stack if frame.kind is FrameKind.PYTHON
        ]


def test_a_folded_stack_ends_in_the_programs_own_function(steps: dict[str, Step]) -> None:
    for site in steps["forward"].sites():
        folded = shown(site.stack, Detail.FOLDED)
        assert is_ours(folded[-1])
        assert {frame.function for frame in folded if not is_ours(frame)} <= {TORCH}
        if passes("cache")(site):
            assert folded[-1] == last_python(site.stack)


def test_two_runs_have_the_same_stacks(runs: Runs) -> None:
    """Pinned memory is had in the same way with all allocators: these are four processes, loaded at four places."""
    pinned = [runs(allocator)["pinned"].sites(MemoryKind.PINNED_HOST) for allocator in Allocator]
    stacks = {site.stack for sites in pinned for site in sites}
    assert len(stacks) == 1
    assert has(
        Site(process=next(iter(pinned[0])).process, thread_id=0, stack=stacks.pop()), "_start", "Run.pinned"
    )
