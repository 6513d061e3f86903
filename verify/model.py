# SPDX-License-Identifier: Apache-2.0
"""What a check is and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from lightkube import Client as KubernetesClient


class CheckFailed(Exception):
    """A check saw something that is not as it should be; the text says what was seen."""


class MissingRight(CheckFailed):
    """Whoever verifies may not look; the text is the server's, which names the right. `remedy` gives it."""

    def __init__(self, text: str, *, remedy: str) -> None:
        super().__init__(f"not allowed: {text}")
        self.remedy = remedy


class NothingToCheck(Exception):
    """The stack has no such part, or this machine cannot look at it; the text says which."""


class Arm(Protocol):
    """Reads Azure Resource Manager."""

    def get(self, resource_id: str, api_version: str) -> dict[str, Any]:
        """The resource as ARM shows it. Raises CheckFailed when it cannot be had."""


class Grafana(Protocol):
    """Reads one Grafana workspace."""

    def get(self, path: str) -> dict[str, Any]:
        """The answer to `GET /api/<path>`. Raises CheckFailed when it is not 200."""

    def query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `POST /api/ds/query`, as a dashboard asks it. Raises CheckFailed when it is not 200."""

    def page(self, url: str) -> None:
        """Opens a page of the workspace. Raises CheckFailed when it does not answer with 200."""


class Pods(Protocol):
    """Runs commands in pods."""

    def run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """What the command printed. Raises CheckFailed when it ends with an error, NothingToCheck when no command
        can be run in pods from here.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A deployed stack: its outputs, and the places where its state can be read."""

    outputs: Mapping[str, Any]
    kubernetes: KubernetesClient
    pods: Pods
    arm: Arm
    grafana: Grafana

    def output(self, name: str) -> str:
        """A stack output. Raises CheckFailed when the stack has none of that name."""
        try:
            return str(self.outputs[name])
        except KeyError:
            raise CheckFailed(f"the stack has no output {name!r}; was `pulumi up` completed?") from None

    def has_profiler(self, name: str) -> bool:
        """Whether the stack has that profiler. One whose outputs do not tell has both."""
        return name in self.outputs.get("profilers", (name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be true of a deployed stack.

    `look` returns what was seen, in a few words, or raises CheckFailed or NothingToCheck; `remedy` is the way out of a
    failure.
    """

    step: str
    title: str
    look: Callable[[Live], str]
    remedy: str


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """There was nothing to look at, or no way to: no failure, and no proof either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    check: Check
    outcome: Outcome
    seen: str
    remedy: str | None = None
    """The way out of a failure."""
