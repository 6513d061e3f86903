# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the stand-in, run once with each of its allocators under one tracer."""

from collections.abc import Iterator

import pytest

from gpuheap.tracer import Tracer, TracerOptions
from tests.standin.build import StandIn
from tests.standin.build import build as build_driver
from tests.standin.runtime.build import build as build_runtime
from tests.torch.installation import Installation, installed
from tests.torch.run import Allocator, Step, run


@pytest.fixture(scope="session")
def torch() -> Installation:
    return installed()


@pytest.fixture(scope="session")
def standin(torch: Installation, tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The driver, and beside it the runtime and all else that PyTorch is linked with."""
    built = build_driver(tmp_path_factory.mktemp("driver"))
    build_runtime(built.folder, torch=torch.libraries, headers=torch.headers)
    return built


@pytest.fixture(scope="module")
def tracer(torch: Installation, standin: StandIn) -> Iterator[Tracer]:
    """Probes set beforehand, as on a node where driver and interpreter are installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(standin.folder))
        with Tracer(TracerOptions(commands=(str(torch.python),))) as tracer:
            yield tracer


@pytest.fixture(scope="module", params=list(Allocator), ids=lambda allocator: allocator.name.lower())
def allocator(request: pytest.FixtureRequest) -> Allocator:
    chosen: Allocator = request.param
    return chosen


@pytest.fixture(scope="module")
def steps(tracer: Tracer, standin: StandIn, torch: Installation, allocator: Allocator) -> dict[str, Step]:
    return run(tracer, standin, torch.python, allocator)
