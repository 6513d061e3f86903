# SPDX-License-Identifier: Apache-2.0
"""What a check is and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lightkube import Client as KubernetesClient


class CheckFailed(Exception):
    """A check saw something that is not as it should be; the text says what was seen."""


class Arm(Protocol):
    """Reads Azure Resource Manager."""

    def get(self, resource_id: str, api_version: str) -> dict[str, Any]:
        """The resource as ARM shows it. Raises CheckFailed when it cannot be had."""


class Grafana(Protocol):
    """Reads one Grafana workspace."""

    def get(self, path: str) -> dict[str, Any]:
        """The answer to `GET /api/<path>`. Raises CheckFailed when it is not 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A deployed stack: its outputs, and the three places where its state can be read."""

    outputs: dict[str, str]
    kubernetes: KubernetesClient
    arm: Arm
    grafana: Grafana

    def output(self, name: str) -> str:
        """A stack output. Raises CheckFailed when the stack has none of that name."""
        try:
            return self.outputs[name]
        except KeyError:
            raise CheckFailed(f"the stack has no output {name!r}; was `pulumi up` completed?") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be true of a deployed stack.

    `look` returns what was seen, in a few words, or raises CheckFailed; `remedy` is the way out when it does.
    """

    step: str
    title: str
    look: Callable[[Live], str]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    check: Check
    passed: bool
    seen: str
