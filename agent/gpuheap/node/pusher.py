# SPDX-License-Identifier: Apache-2.0
"""Sends profiles to Pyroscope's push API, beside the thread that traces.

`POST /push.v1.PusherService/Push` with JSON, one series a request: a request of several series is not atomic. What is
retried: no connection, 429 and 503, where surely nothing was stored. Never retried: every other refusal (bad data is
answered with 500, too), and an answer that did not come, because the server adds up what it gets twice.
"""

import base64
import json
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import urllib3

from gpuheap import __version__
from gpuheap.node.log import LOGGER, line
from gpuheap.node.pushes import Push

PATH: Final = "/push.v1.PusherService/Push"
TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=20.0)
"""A healthy server answers after its flush, half a second; a loaded one after some seconds."""

RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
RETRIED_STATUS: Final = frozenset({429, 503})
WORKERS: Final = 4
QUEUE_LENGTH: Final = 1024


class Outcome(StrEnum):
    """What became of a profile."""

    STORED = "stored"
    REFUSED = "refused"
    FAILED = "failed"
    DROPPED = "dropped"


class Pusher:
    """A bounded queue and the threads that empty it. `close` ends them."""

    def __init__(
        self,
        url: str,
        *,
        queue_length: int = QUEUE_LENGTH,
        retry_seconds: tuple[float, ...] = RETRY_SECONDS,
        timeout: urllib3.Timeout = TIMEOUT,
    ) -> None:
        self._url = url + PATH
        self._retry_seconds = retry_seconds
        # Retries are decided here: urllib3's own would repeat a push whose answer was lost.
        self._http = urllib3.PoolManager(maxsize=WORKERS, timeout=timeout, retries=False)
        self._queue: queue.Queue[Push | None] = (
            queue.Queue()
        )  # bounded by `submit`, so that the end marks always fit
        self._queue_length = queue_length
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._outcomes: Counter[Outcome] = Counter()
        self._threads = [
            threading.Thread(target=self._work, name=f"gpuheap-push-{number}", daemon=True)
            for number in range(WORKERS)
        ]
        for thread in self._threads:
            thread.start()

    def outcomes(self) -> dict[Outcome, int]:
        """Profiles by what became of them; every outcome is there."""
        with self._lock:
            return {outcome: self._outcomes[outcome] for outcome in Outcome}

    def submit(self, pushes: Iterable[Push]) -> None:
        """Queue profiles; never waits. What does not fit is dropped and counted."""
        dropped = 0
        for push in pushes:
            if self._queue.qsize() < self._queue_length:
                self._queue.put(push)
            else:
                dropped += 1
        if dropped:
            self._count(Outcome.DROPPED, dropped)
            LOGGER.warning(line("push-dropped", profiles=dropped, reason="queue full", url=self._url))

    def close(self, timeout_seconds: float) -> None:
        """Send what is queued, for at most the time given; what is left then is dropped and counted."""
        deadline = time.monotonic() + timeout_seconds
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(lambda: not self._queue.unfinished_tasks, timeout_seconds)
        self._hurry.set()
        left = self._discard()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if left:
            LOGGER.warning(line("push-dropped", profiles=left, reason="stopping", url=self._url))

    def _discard(self) -> int:
        left = 0
        try:
            while True:
                self._queue.get_nowait()
                self._queue.task_done()
                left += 1
        except queue.Empty:
            self._count(Outcome.DROPPED, left)
        return left

    def _work(self) -> None:
        while (push := self._queue.get()) is not None:
            try:
                outcome, why = self._send(push)
            except Exception as error:  # a bug in sending one profile must not end the sending of all others
                outcome, why = Outcome.FAILED, repr(error)
            self._count(outcome)
            if outcome is not Outcome.STORED:
                service = dict(push.labels).get("service_name", "")
                LOGGER.warning(line("push", outcome=outcome, service=service, reason=why, url=self._url))
            self._queue.task_done()
        self._queue.task_done()

    def _send(self, push: Push) -> tuple[Outcome, str]:
        body = _body(push)
        outcome, why = self._attempt(body)
        for pause in self._retry_seconds:
            if outcome is not None or self._hurry.wait(pause):
                break
            outcome, why = self._attempt(body)
        return outcome or Outcome.FAILED, why

    def _attempt(self, body: bytes) -> tuple[Outcome | None, str]:
        """The outcome, None when it is worth another try, and the reason."""
        headers = {"Content-Type": "application/json", "User-Agent": f"gpuheap/{__version__}"}
        try:
            answer = self._http.request("POST", self._url, body=body, headers=headers)
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            return None, f"no connection: {_reason(error)}"
        except urllib3.exceptions.HTTPError as error:
            return Outcome.FAILED, f"no answer: {_reason(error)}"
        if answer.status == 200:
            return Outcome.STORED, ""
        why = f"HTTP {answer.status}: {answer.data[:500].decode(errors='replace').strip()}"
        return (None if answer.status in RETRIED_STATUS else Outcome.REFUSED), why

    def _count(self, outcome: Outcome, number: int = 1) -> None:
        with self._lock:
            self._outcomes[outcome] += number


def _body(push: Push) -> bytes:
    series = {
        "labels": [{"name": name, "value": value} for name, value in push.labels],
        "samples": [{"rawProfile": base64.b64encode(push.pprof).decode()}],
    }
    return json.dumps({"series": [series]}).encode()


def _reason(error: Exception) -> str:
    """What urllib3 says, without the connection object that it names first."""
    return re.sub(r"<\S+ object at 0x[0-9a-f]+>(, '[^']*')?: ", "", str(error))
