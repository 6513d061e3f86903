# SPDX-License-Identifier: Apache-2.0
"""The pushes through the local cloud's Pyroscope, which refuses what the real one was measured to refuse."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from gpuheap import contract
from gpuheap.heap.model import Frame, Site
from gpuheap.node.pusher import Outcome, Pusher
from gpuheap.node.pushes import pushes
from gpuheap.profile.decode import decode
from localcloud.azure.pyroscope import PyroscopeApi
from localcloud.azure.store import Store
from tests.agent.heap.values import PYTHON, WORKER, site
from tests.waiting import wait_for


class Pyroscope:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.server = uvicorn.Server(
            uvicorn.Config(Starlette(routes=PyroscopeApi(store).routes), port=0, log_level="error")
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"


@pytest.fixture
def pyroscope(tmp_path: Path) -> Iterator[Pyroscope]:
    running = Pyroscope(Store(tmp_path / "store.db"))
    thread = threading.Thread(target=running.server.run)
    thread.start()
    wait_for("the server", lambda: running.server.started)
    yield running
    running.server.should_exit = True
    thread.join()


def pushed(url: str, values: dict[Site, tuple[int, int, int, int]]) -> dict[Outcome, int]:
    """Outcomes that occurred, of profiles taken now."""
    now = time.time_ns() // 15_000_000_000 * 15_000_000_000
    pusher = Pusher(url)
    pusher.submit(pushes(values, node="n1", cluster="c1", time_unix_ns=now, duration_ns=15_000_000_000))
    pusher.close(60)
    return {outcome: count for outcome, count in pusher.outcomes().items() if count}


def test_what_is_stored_is_what_was_pushed(pyroscope: Pyroscope) -> None:
    values = {
        site("main:3", "load:9"): (1, 10, 3, 30),
        site("main:3", "step:12", thread_id=2): (2, 20, 2, 20),
        site("main:3", process=WORKER): (4, 40, 4, 40),
    }
    assert pushed(pyroscope.url, values) == {Outcome.STORED: 2}
    stored = {
        (
            profile.labels["service_name"],
            tuple((frame.function, frame.line) for frame in sample.stack),
        ): sample.values
        for profile in pyroscope.store.profiles()
        for sample in decode(profile.pprof, name="stored").samples
    }
    assert stored == {
        (one.process.name, tuple((frame.function, frame.line) for frame in one.stack)): numbers
        for one, numbers in values.items()
    }


def test_a_profile_with_ten_thousand_long_stacks_is_stored_in_parts(pyroscope: Pyroscope) -> None:
    values = {
        Site(process=PYTHON, thread_id=1, stack=(Frame(function=f"{number:0200}"),)): (1, 10, 1, 10)
        for number in range(10_000)
    }
    outcomes = pushed(pyroscope.url, values)
    assert set(outcomes) == {Outcome.STORED}
    profiles = [decode(profile.pprof, name="stored") for profile in pyroscope.store.profiles()]
    assert len(profiles) == outcomes[Outcome.STORED] > 1
    assert sum(sample.values[3] for profile in profiles for sample in profile.samples) == 100_000
    assert contract.profile_type_id("inuse_space") == "gpu_memory:inuse_space:bytes:space:bytes"
