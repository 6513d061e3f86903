# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest
import urllib3
from prometheus_client import CollectorRegistry

from gpuheap.node.settings import SettingsError
from gpuheap.node.web import MetricsServer


class State:
    problem: str | None = None


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def server(state: State) -> Iterator[MetricsServer]:
    with MetricsServer(
        "127.0.0.1", 0, metrics=CollectorRegistry(), healthy=lambda: None, ready=lambda: state.problem
    ) as running:
        yield running


def get(server: MetricsServer, path: str) -> tuple[int, str]:
    answer = urllib3.request("GET", f"http://127.0.0.1:{server.port}{path}", retries=False, timeout=10)
    return answer.status, answer.data.decode()


def test_checks_and_metrics_have_their_paths(server: MetricsServer) -> None:
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/metrics")[0] == 200
    assert get(server, "/")[0] == 404


def test_a_failed_check_says_why(server: MetricsServer, state: State) -> None:
    assert get(server, "/readyz") == (200, "ok\n")
    state.problem = "the tracer was not polled yet"
    assert get(server, "/readyz") == (503, "the tracer was not polled yet\n")


def test_a_taken_address_is_refused_with_the_way_to_set_another(server: MetricsServer) -> None:
    with pytest.raises(SettingsError, match=r"Address already in use .*GPUHEAP_METRICS_ADDRESS"):
        MetricsServer(
            "127.0.0.1", server.port, metrics=CollectorRegistry(), healthy=lambda: None, ready=lambda: None
        )
