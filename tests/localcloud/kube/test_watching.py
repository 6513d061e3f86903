# SPDX-License-Identifier: Apache-2.0
"""The loop behind the simulated controllers, on a watch whose events the tests choose."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta, Status
from lightkube.resources.core_v1 import ConfigMap

from localcloud.kube import watching
from localcloud.kube.watching import Follower, TryAgain


def thing(name: str, version: str = "1") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, uid=f"uid-{name}", resourceVersion=version))


def name_of(seen: ConfigMap) -> str:
    assert seen.metadata
    return f"{seen.metadata.name}@{seen.metadata.resourceVersion}"


class Server:
    """A watch that goes on for as long as a test gives it events; an exception among them ends it."""

    def __init__(self) -> None:
        self.events: SimpleQueue[tuple[str, ConfigMap] | Exception] = SimpleQueue()
        self.watches = 0

    def watch(self) -> Iterator[tuple[str, ConfigMap]]:
        self.watches += 1
        while True:
            event = self.events.get()
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(watching, "RETRY_AFTER_ERROR_SECONDS", 0.01)


@pytest.fixture
def follow() -> Iterator[Callable[..., Server]]:
    started: list[tuple[Follower[ConfigMap], Server]] = []

    def start(present: Callable[[ConfigMap], None], **more: Any) -> Server:
        server = Server()
        started.append((Follower("things", server.watch, present, **more), server))
        return server

    yield start
    for follower, server in started:
        follower.stop()
        server.events.put(("BOOKMARK", thing("end")))  # its reader waits for an event


def test_an_object_that_cannot_be_dealt_with_keeps_no_other_waiting(
    follow: Callable[..., Server], waiting: Callable[..., Any]
) -> None:
    done: list[str] = []

    def present(seen: ConfigMap) -> None:
        if name_of(seen) == "stuck@1":
            raise TryAgain("not yet")
        done.append(name_of(seen))

    server = follow(present)
    for name in ("stuck", "first", "second"):
        server.events.put(("ADDED", thing(name)))
    waiting("the others done", lambda: done == ["first@1", "second@1"])
    assert server.watches == 1, "a new watch would begin with the object that is stuck"


@pytest.mark.parametrize("error", [TryAgain("not yet"), ValueError("a fault of ours")])
def test_what_failed_is_tried_again_until_it_works(
    follow: Callable[..., Server], waiting: Callable[..., Any], error: Exception
) -> None:
    attempts: list[str] = []
    done: list[str] = []

    def present(seen: ConfigMap) -> None:
        attempts.append(name_of(seen))
        if len(attempts) < 3:
            raise error
        done.append(name_of(seen))

    server = follow(present)
    server.events.put(("ADDED", thing("one")))
    waiting("success", lambda: done)
    assert attempts == ["one@1"] * 3


def test_an_object_that_changed_is_tried_in_its_newer_form_only(
    follow: Callable[..., Server], waiting: Callable[..., Any]
) -> None:
    attempts: list[str] = []
    changed: list[bool] = []

    def present(seen: ConfigMap) -> None:
        attempts.append(name_of(seen))
        if name_of(seen) == "one@1":
            raise TryAgain("not yet")
        changed.append(True)

    server = follow(present)
    server.events.put(("ADDED", thing("one")))
    waiting("the first attempt", lambda: attempts)
    server.events.put(("MODIFIED", thing("one", "2")))
    waiting("the newer form", lambda: changed)
    server.events.put(("ADDED", thing("other")))
    waiting("another object", lambda: "other@1" in attempts)
    assert attempts[attempts.index("one@2") :] == ["one@2", "other@1"]


def test_a_deleted_object_is_not_tried_again(
    follow: Callable[..., Server], waiting: Callable[..., Any]
) -> None:
    attempts: list[str] = []
    gone: list[str] = []

    def present(seen: ConfigMap) -> None:
        attempts.append(name_of(seen))
        if name_of(seen) == "one@1":
            raise TryAgain("not yet")

    server = follow(present, gone=lambda seen: gone.append(name_of(seen)))
    server.events.put(("ADDED", thing("one")))
    waiting("the first attempt", lambda: attempts)
    server.events.put(("DELETED", thing("one", "2")))
    waiting("its end", lambda: gone == ["one@2"])
    before = len(attempts)
    for number in range(20):
        server.events.put(("ADDED", thing(f"other-{number}")))
    waiting("others", lambda: "other-19@1" in attempts)
    assert "one@1" not in attempts[before:]


def test_a_watch_that_fails_is_started_anew(
    follow: Callable[..., Server], waiting: Callable[..., Any]
) -> None:
    done: list[str] = []
    server = follow(lambda seen: done.append(name_of(seen)))
    server.events.put(refusal(410))
    server.events.put(("ADDED", thing("one")))
    waiting("an object of the second watch", lambda: done == ["one@1"])
    assert server.watches == 2


@pytest.mark.parametrize("code", [404, 409])
def test_what_someone_else_changed_or_deleted_is_left_to_the_next_event(
    follow: Callable[..., Server], waiting: Callable[..., Any], code: int
) -> None:
    attempts: list[str] = []

    def present(seen: ConfigMap) -> None:
        attempts.append(name_of(seen))
        if name_of(seen) == "one@1":
            raise refusal(code)

    server = follow(present)
    server.events.put(("ADDED", thing("one")))
    for number in range(20):
        server.events.put(("ADDED", thing(f"other-{number}")))
    waiting("others", lambda: "other-19@1" in attempts)
    assert attempts.count("one@1") == 1


def test_nothing_is_done_after_stop(waiting: Callable[..., Any]) -> None:
    done: list[str] = []
    server = Server()
    follower = Follower("things", server.watch, lambda seen: done.append(name_of(seen)))
    server.events.put(("ADDED", thing("one")))
    waiting("the first", lambda: done == ["one@1"])
    follower.stop()
    server.events.put(("ADDED", thing("two")))
    waiting("the event taken", server.events.empty)
    assert done == ["one@1"]


def refusal(code: int) -> ApiError:
    return ApiError(status=Status(code=code, message="refused"))
