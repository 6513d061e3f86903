# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the stand-in, run once with each of its allocators."""

from collections.abc import Callable
from functools import cache

import pytest

from gpuheap.tracer import Tracer, TracerOptions
from tests.standin.build import StandIn
from tests.standin.build import build as build_driver
from tests.standin.runtime.build import build as build_runtime
from tests.torch.installation import Installation, installed
from tests.torch.run import Allocator, Step, run

Runs = Callable[[Allocator], dict[str, Step]]


@pytest.fixture(scope="session")
def torch() -> Installation:
    return installed()


@pytest.fixture(scope="session")
def standin(torch: Installation, tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The driver, and beside it the runtime and all else that PyTorch is linked with."""
    built = build_driver(tmp_path_factory.mktemp("driver"))
    build_runtime(built.folder, torch=torch.libraries, headers=torch.headers)
    return built


@pytest.fixture(scope="session")
def runs(torch: Installation, standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What was seen of a run with this allocator; each runs when it is first asked for."""
    bytecode = tmp_path_factory.mktemp("bytecode")

    @cache
    def seen(allocator: Allocator) -> dict[str, Step]:
        options = TracerOptions(commands=(str(torch.python),), native_stacks=True)
        with pytest.MonkeyPatch.context() as patch:
            # Probes are set beforehand, as on a node where driver and interpreter are installed.
            patch.setenv("LD_LIBRARY_PATH", str(standin.folder))
            with Tracer(options) as tracer:
                return run(tracer, standin, torch.python, allocator, bytecode)

    return seen


@pytest.fixture(scope="session", params=list(Allocator), ids=lambda allocator: allocator.name.lower())
def allocator(request: pytest.FixtureRequest) -> Allocator:
    chosen: Allocator = request.param
    return chosen


@pytest.fixture(scope="session")
def steps(runs: Runs, allocator: Allocator) -> dict[str, Step]:
    return runs(allocator)
