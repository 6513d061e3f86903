# SPDX-License-Identifier: Apache-2.0
"""A transformer on PyTorch: whose memory it is, and what PyTorch and the driver say of it.

Bytes are counted by hand from the shapes in `transformer.py`; lines are those that its comments mark.
"""

from pathlib import Path
from typing import Final

import pytest

from gpuheap.heap.model import FrameKind, MemoryKind, Site
from tests.torch.conftest import Runs
from tests.torch.run import STEPS, Allocator, Step, is_ours, last_python, marked, passes, runs

pytestmark = [pytest.mark.bpf, pytest.mark.torch]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
WEIGHTS: Final = 256 * MIB
"""Words 8192 × 2048, queries, keys and values 2048 × 6144, output 2048 × 2048, twice 2048 × 8192; four bytes each."""

CACHE: Final = 64 * MIB
"""4 pages of 2 × 1024 × 2048."""

FEED_FORWARD: Final = 144 * MIB
"""8 × 256 tokens: of width 8192 before and after the activation function, of width 2048 at the end."""

WORKSPACE: Final = 2 * 4096 * 1024 + 8 * 16 * 1024
"""Of each matrix product: PyTorch's default for CUBLAS_WORKSPACE_CONFIG is `:4096:2:16:8`, in KiB and buffers."""

SCRATCH: Final = 160 * MIB
PINNED: Final = 16 * MIB
CHUNK: Final = 20 * MIB
"""What PyTorch maps at a time with expandable segments, and its segment for what is below 10 MiB otherwise."""

PASSED_ON: Final = frozenset({Allocator.CUDA_MALLOC_ASYNC, Allocator.NONE})
"""Each tensor is a call of the driver's."""

UNKNOWN_SHARE: Final = 0.001


def _may_be(found: int, asked: int, allocator: Allocator) -> bool:
    """With expandable segments, what is left of one at its end is used by who comes next."""
    if allocator is Allocator.EXPANDABLE_SEGMENTS:
        return asked / 2 < found < asked + CHUNK
    return found == asked


@pytest.mark.parametrize("name", STEPS)
def test_the_tracer_counts_what_the_driver_counts(steps: dict[str, Step], name: str) -> None:
    step = steps[name]
    assert step.in_use() == step.ledger.of("device").live
    assert step.in_use(MemoryKind.PINNED_HOST) == step.ledger.of("pinned_host", -1).live


@pytest.mark.parametrize("name", STEPS)
def test_pytorch_has_reserved_what_the_tracer_counts(
    steps: dict[str, Step], allocator: Allocator, name: str
) -> None:
    step = steps[name]
    pools = step.pools().values()
    held = {
        Allocator.CACHING: step.in_use()[0],
        Allocator.EXPANDABLE_SEGMENTS: step.in_use()[0],
        Allocator.CUDA_MALLOC_ASYNC: sum(pool.in_use_bytes + pool.retained_bytes for pool in pools),
        Allocator.NONE: 0,  # then it keeps no figures
    }
    assert step.reserved_bytes == held[allocator]


@pytest.mark.parametrize("name", STEPS)
def test_pytorchs_tensors_are_what_is_in_use_where_each_is_had_of_the_driver(runs: Runs, name: str) -> None:
    step = runs(Allocator.CUDA_MALLOC_ASYNC)[name]
    assert step.tensor_bytes == step.in_use()[0]


def test_weights_are_those_of_the_line_that_moves_the_model(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    moved = steps["weights"].allocated_where(passes("weights"))
    assert _may_be(moved, WEIGHTS, allocator)
    assert moved == steps["weights"].allocated_bytes()


def test_weights_end_in_the_function_of_pytorch_that_converts_them(steps: dict[str, Step]) -> None:
    sites = filter(passes("weights"), steps["weights"].sites())
    ends = {(last_python(site.stack).function, Path(last_python(site.stack).file).name) for site in sites}
    assert ends == {("Module.to.<locals>.convert", "module.py")}


def test_a_cache_is_that_of_the_line_that_makes_its_pages(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    made = steps["cache"].allocated_where(
        lambda site: is_ours(last_python(site.stack)) and last_python(site.stack).line == marked("cache")
    )
    assert _may_be(made, CACHE, allocator)
    assert last_names(next(filter(passes("cache"), steps["cache"].sites()))) == [
        "KeyValueCache.__init__",
        "KeyValueCache.page",
    ]


def last_names(site: Site) -> list[str]:
    """The two innermost Python functions, list comprehensions left out: from 3.12 on they are no functions."""
    names = [frame.function for frame in site.stack if frame.kind is FrameKind.PYTHON]
    return [name for name in names if not name.endswith("<listcomp>")][-2:]


def test_activations_are_those_of_the_layer_that_makes_them(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    made = steps["forward"].allocated_where(passes("feed forward"))
    if allocator in PASSED_ON:
        assert made == FEED_FORWARD + 2 * WORKSPACE
    else:
        assert 0 < made <= FEED_FORWARD + CHUNK, "what was kept from the attention before is used again"


@pytest.mark.parametrize("name", ["weights", "cache", "forward"])
def test_all_that_a_step_allocates_is_under_its_function(steps: dict[str, Step], name: str) -> None:
    before = steps[STEPS[STEPS.index(name) - 1]].allocated_bytes() if name != STEPS[0] else 0
    brought = steps[name].allocated_bytes() - before
    assert brought > 0
    assert steps[name].allocated_where(runs(f"Run.{name}")) == brought


def test_a_backward_function_is_named_on_the_thread_that_autograd_runs_it_on(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    step = steps["backward"]
    assert _may_be(step.allocated_where(passes("gate")), SCRATCH, allocator)
    for site in filter(passes("gate"), step.sites()):
        assert site.thread_id != step.main_thread
        assert last_python(site.stack).function == "Gate.backward"


def test_pinned_memory_is_that_of_the_line_that_asks_for_it(steps: dict[str, Step]) -> None:
    pinned = steps["pinned"].sites(MemoryKind.PINNED_HOST)
    assert [totals.in_use_bytes for site, totals in pinned.items() if passes("pinned")(site)] == [PINNED]


def test_a_failure_for_want_of_memory_names_the_line_that_asked(
    steps: dict[str, Step], allocator: Allocator
) -> None:
    failures = steps["out_of_memory"].out_of_memory()
    asked = CHUNK if allocator is Allocator.EXPANDABLE_SEGMENTS else 7.5 * GIB
    assert failures
    assert {failure.asked_bytes for failure in failures} == {asked}
    assert all(passes("out of memory")(failure.site) for failure in failures)


def test_a_failure_for_want_of_memory_knows_what_was_held(steps: dict[str, Step]) -> None:
    step = steps["out_of_memory"]
    failure = step.out_of_memory()[-1]  # by then PyTorch has given back all that it did not need
    held = sum(
        holding.bytes
        for site, holding in failure.holdings.items()
        if site.kind is MemoryKind.DEVICE and not passes("out of memory")(site)
    )
    assert held == step.in_use()[0]


def test_failed_calls_are_those_of_the_driver(steps: dict[str, Step]) -> None:
    step = steps["out_of_memory"]
    found = {code: count for (one, code), count in step.reading.failures.items() if one.pid == step.pid}
    assert found == step.ledger.failed


def test_nothing_is_in_use_when_pytorch_has_given_everything_back(steps: dict[str, Step]) -> None:
    assert steps["empty"].ledger.of("device").live == (0, 0)
    assert steps["empty"].in_use() == (0, 0)


def test_hardly_a_byte_is_without_its_stack(steps: dict[str, Step]) -> None:
    step = steps["empty"]
    unknown = step.allocated_where(
        lambda site: not site.stack or any(frame.kind is FrameKind.UNKNOWN for frame in site.stack)
    )
    assert unknown <= UNKNOWN_SHARE * step.allocated_bytes()
