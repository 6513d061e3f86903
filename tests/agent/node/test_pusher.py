# SPDX-License-Identifier: Apache-2.0
import base64
import socket
import time

import pytest
import urllib3

from gpuheap.node.pusher import Outcome, Pusher
from gpuheap.node.pushes import Push
from tests.agent.node import push_stub
from tests.agent.node.push_stub import PushStub
from tests.waiting import wait_for

QUICK = (0.01, 0.01, 0.01)


def push(number: int = 0) -> Push:
    labels = (("__name__", "gpu_memory"), ("service_name", f"s{number}"))
    return Push(labels=labels, pprof=f"profile {number}".encode())


def outcome_of(answers: list[tuple[int, str]], *, packed: bool = False) -> tuple[dict[Outcome, int], int]:
    """What one push becomes when the server answers so, and how many requests were made."""
    with PushStub(answers, packed=packed) as stub:
        pusher = Pusher(stub.url, retry_seconds=QUICK)
        pusher.submit([push()])
        pusher.close(20)
        return {outcome: count for outcome, count in pusher.outcomes().items() if count}, len(stub.got)


def test_a_push_is_one_series_in_json() -> None:
    with PushStub() as stub:
        pusher = Pusher(stub.url)
        pusher.submit([push()])
        pusher.close(20)
    (got,) = stub.got
    assert (got.path, got.content_type) == ("/push.v1.PusherService/Push", "application/json")
    labels = [{"name": "__name__", "value": "gpu_memory"}, {"name": "service_name", "value": "s0"}]
    samples = [{"rawProfile": base64.b64encode(b"profile 0").decode()}]
    assert got.body == {"series": [{"labels": labels, "samples": samples}]}
    assert pusher.outcomes() == {
        Outcome.STORED: 1,
        Outcome.REFUSED: 0,
        Outcome.FAILED: 0,
        Outcome.DROPPED: 0,
    }


@pytest.mark.parametrize("answer", [push_stub.NOT_PPROF, push_stub.BAD_LABELS, (415, ""), (404, "no")])
def test_a_refusal_is_never_retried(answer: tuple[int, str]) -> None:
    assert outcome_of([answer]) == ({Outcome.REFUSED: 1}, 1)


@pytest.mark.parametrize("answer", [push_stub.RATE_LIMIT, push_stub.NOT_READY])
def test_what_surely_was_not_stored_is_sent_again(answer: tuple[int, str]) -> None:
    assert outcome_of([answer, answer]) == ({Outcome.STORED: 1}, 3)


def test_a_server_that_stays_overloaded_is_given_up() -> None:
    assert outcome_of([push_stub.RATE_LIMIT] * 10) == ({Outcome.FAILED: 1}, 1 + len(QUICK))


def test_a_lost_answer_is_not_retried_because_the_server_would_count_it_twice() -> None:
    assert outcome_of([push_stub.HANG_UP]) == ({Outcome.FAILED: 1}, 1)


def test_an_answer_that_comes_too_late_is_not_retried_either() -> None:
    with PushStub() as stub:
        stub.hold.clear()
        pusher = Pusher(stub.url, retry_seconds=QUICK, timeout=urllib3.Timeout(connect=5, read=0.1))
        pusher.submit([push()])
        wait_for("the failure", lambda: pusher.outcomes()[Outcome.FAILED] == 1)
        pusher.close(20)
        assert len(stub.got) == 1


@pytest.mark.parametrize(
    ("answer", "outcome"), [(push_stub.STORED, Outcome.STORED), (push_stub.BAD_LABELS, Outcome.REFUSED)]
)
def test_a_gzip_answer_is_understood(answer: tuple[int, str], outcome: Outcome) -> None:
    assert outcome_of([answer], packed=True) == ({outcome: 1}, 1)


def test_a_server_that_comes_up_late_gets_the_profile() -> None:
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        port = placeholder.getsockname()[1]
    pusher = Pusher(f"http://127.0.0.1:{port}", retry_seconds=QUICK)
    pusher.submit([push()])
    wait_for("the failure", lambda: pusher.outcomes()[Outcome.FAILED] == 1)
    pusher.close(5)
    with PushStub() as stub:
        late = Pusher(stub.url, retry_seconds=QUICK)
        late.submit([push()])
        late.close(20)
    assert late.outcomes()[Outcome.STORED] == 1


def test_what_does_not_fit_into_the_queue_is_dropped_and_counted_without_waiting() -> None:
    with PushStub() as stub:
        stub.hold.clear()
        pusher = Pusher(stub.url, queue_length=3)
        pusher.submit(push(number) for number in range(4))  # one for each sender
        wait_for("three tries", lambda: len(stub.got) >= 3)
        pusher.submit(push(number) for number in range(100))
        dropped = pusher.outcomes()[Outcome.DROPPED]
        assert dropped >= 96
        stub.hold.set()
        pusher.close(20)
    assert sum(pusher.outcomes().values()) == 104, "each profile has exactly one outcome"


def test_closing_sends_what_is_queued() -> None:
    with PushStub() as stub:
        pusher = Pusher(stub.url)
        pusher.submit(push(number) for number in range(30))
        pusher.close(20)
        assert sorted(got.body["series"][0]["labels"][1]["value"] for got in stub.got) == sorted(
            f"s{number}" for number in range(30)
        )


def test_closing_ends_in_time_when_the_server_is_silent() -> None:
    with PushStub() as stub:
        stub.hold.clear()
        pusher = Pusher(stub.url)
        pusher.submit(push(number) for number in range(30))
        began = time.monotonic()
        pusher.close(0.3)
        assert time.monotonic() - began < 5
        assert pusher.outcomes()[Outcome.DROPPED] == 26, "four are with the senders"
