# SPDX-License-Identifier: Apache-2.0
"""Threads that follow the objects of one kind and bring the world in line with each, until that works.

What must be done is read from the object as it is now, never from what happened to it, so seeing one twice is
harmless. An object that cannot be dealt with yet is tried again and keeps no other one waiting.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from lightkube import ApiError, Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta


class KubernetesObject(Protocol):
    """What all objects have."""

    @property
    def metadata(self) -> ObjectMeta | None: ...


Watched = TypeVar("Watched", bound=KubernetesObject)

RETRY_SECONDS: Final = 0.5
RETRY_AFTER_ERROR_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 300
"""How long the server keeps one connection; the watch then goes on where it was."""

_log = logging.getLogger(__name__)


class TryAgain(Exception):
    """The object cannot be dealt with yet; the text says why."""


def client(kubeconfig: Path) -> Client:
    """A client that goes to the loopback whatever proxy the environment names."""
    return Client(KubeConfig.from_file(kubeconfig).get(), trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task(Generic[Watched]):
    event: str
    act: Callable[[Watched], None]
    seen: Watched
    due: float


class Follower(Generic[Watched]):
    """Two threads: one reads the watch, one calls `present` for each object and each change, `gone` for deleted ones.

    `watch` starts a watch that begins with all objects there are; when it fails, all are seen anew.
    """

    def __init__(
        self,
        title: str,
        watch: Callable[[], Iterator[tuple[str, Watched]]],
        present: Callable[[Watched], None],
        *,
        gone: Callable[[Watched], None] | None = None,
    ) -> None:
        self._title = title
        self._watch = watch
        self._acts = {"ADDED": present, "MODIFIED": present, "DELETED": gone}
        self._stopping = threading.Event()
        self._acting = threading.Lock()
        self._tasks: dict[str, _Task[Watched]] = {}  # by UID, the newest of each object, in order of arrival
        self._tasks_changed = threading.Condition()
        threading.Thread(target=self._read, name=f"watch {title}", daemon=True).start()
        threading.Thread(target=self._work, name=f"follow {title}", daemon=True).start()

    def stop(self) -> None:
        """Let what is being done end; nothing is done afterwards. The reader ends with the next event."""
        self._stopping.set()
        with self._tasks_changed:
            self._tasks_changed.notify_all()
        with self._acting:
            pass

    def _read(self) -> None:
        while not self._stopping.is_set():
            try:
                for event, seen in self._watch():
                    if self._stopping.is_set():
                        return
                    self._put(event, seen)
            except Exception:  # a thread that ended for one bad answer would stop the whole cluster
                if not self._stopping.is_set():
                    _log.exception("watch=%s starts anew", self._title)
            with self._tasks_changed:
                # What is there comes again; what has gone meanwhile does not, and must not be tried for ever.
                self._tasks = {uid: task for uid, task in self._tasks.items() if task.event == "DELETED"}
            self._stopping.wait(RETRY_SECONDS)

    def _put(self, event: str, seen: Watched) -> None:
        with self._tasks_changed:
            self._tasks.pop(_uid(seen), None)
            if act := self._acts.get(event):
                self._tasks[_uid(seen)] = _Task(event=event, act=act, seen=seen, due=time.monotonic())
                self._tasks_changed.notify()

    def _work(self) -> None:
        while task := self._next():
            with self._acting:
                if self._stopping.is_set():
                    return
                wait_seconds = self._do(task)
            if wait_seconds is not None:
                with self._tasks_changed:
                    # Unless the object has changed meanwhile: then it is waiting in its newer form.
                    self._tasks.setdefault(
                        _uid(task.seen), replace(task, due=time.monotonic() + wait_seconds)
                    )

    def _next(self) -> _Task[Watched] | None:
        """The task that is due, as soon as one is; None when this stops."""
        with self._tasks_changed:
            while not self._stopping.is_set():
                first = min(self._tasks.values(), key=lambda task: task.due, default=None)
                wait_seconds = first.due - time.monotonic() if first else None
                if first and wait_seconds is not None and wait_seconds <= 0:
                    return self._tasks.pop(_uid(first.seen))
                self._tasks_changed.wait(wait_seconds)
        return None

    def _do(self, task: _Task[Watched]) -> float | None:
        """Do it; None when it is done, else the seconds until it is to be tried again."""
        try:
            task.act(task.seen)
        except TryAgain as reason:
            _log.info("watch=%s again=%s", self._title, reason)
            return RETRY_SECONDS
        except Exception as error:  # as above: one bad object is no reason to neglect the others
            if isinstance(error, ApiError) and error.status.code in (404, 409):
                # Deleted or changed by someone else meanwhile: the event for that is on its way.
                return None
            _log.exception("watch=%s object=%s", self._title, _uid(task.seen))
            return RETRY_AFTER_ERROR_SECONDS
        return None


def _uid(seen: KubernetesObject) -> str:
    assert seen.metadata
    assert seen.metadata.uid
    return seen.metadata.uid
