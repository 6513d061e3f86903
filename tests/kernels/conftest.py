# SPDX-License-Identifier: Apache-2.0
"""What the script answers under other kernels: each runs once, whichever tests ask first."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.debian import NotObtainable
from tests.kernels import archive, machine
from tests.standin.build import StandIn, build

INSIDE: Final = Path(__file__).with_name("inside.py")
PROGRAM: Final = Path(__file__).with_name("program.py")
TRIES: Final = 3


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> machine.Job:
    driver: StandIn = build(tmp_path_factory.mktemp("driver"))
    return machine.Job(script=INSIDE, files=(PROGRAM, driver.library), environment=driver.environment())


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all lanes."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module", params=archive.RELEASES, ids=[release.series for release in archive.RELEASES])
def there(
    request: pytest.FixtureRequest, job: machine.Job, answers: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the script answers under the kernel of one release."""
    release: archive.Release = request.param
    answer = answers / f"{release.series}.json"
    with answer.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            answer.write_text(json.dumps(_run_under(release, job, tmp_path_factory.mktemp(release.series))))
    return dict(json.loads(answer.read_text()))


def _run_under(release: archive.Release, job: machine.Job, folder: Path) -> Any:
    try:
        kernel = archive.kernel(release)
        archive.emulator()
    except NotObtainable as error:
        pytest.skip(str(error))
    # Where emulation is slow, a process may be gone before it is looked at: counted, and no answer about the kernel.
    for number in range(TRIES):
        (place := folder / str(number)).mkdir()
        answer = machine.run_under(kernel, job, place)
        assert answer["kernel"] == kernel.release
        if not answer.get("losses"):
            break
    return answer
