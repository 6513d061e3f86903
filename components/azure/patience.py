# SPDX-License-Identifier: Apache-2.0
"""Waits for Azure, with an end: repeats an attempt until it answers, and says all the while what it waits
for.

Every wait in this package goes through here. No pulumi import: the clock and the place for progress are
given.
"""

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

T = TypeVar("T")

NOT_ALLOWED: Final = frozenset({401, 403})
"""Answers to an identity whose role assignment has not reached every server yet; or which has none."""
BUSY: Final = frozenset({408, 409, 429, 500, 502, 503, 504})
"""Answers after which Azure Resource Manager may be asked again. 409: another change of the same resource is
under way.
"""


class NotYet(Exception):
    """An attempt found that what it waits for has not come; the text says what it saw instead."""


class DeadlinePassed(Exception):
    """Azure did not do what was waited for in time; the text says what was seen last."""


class Clock(Protocol):
    """The two functions of the module `time` that are used."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def to_stderr(message: str) -> None:
    """The engine shows what a provider prints there while it works."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait, how often to look, and whom to tell."""

    seconds: float = 1200.0
    role_seconds: float = 600.0
    """New role assignments take up to ten minutes:
    https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
    """
    interval_seconds: float = 2.0
    clock: Clock = time
    progress: Callable[[str], None] = to_stderr
    again: Collection[int] = field(default=BUSY)
    """HTTP status codes, beside those of missing rights, after which an attempt is repeated."""

    def wait(self, what: str, attempt: Callable[[], T]) -> T:
        """What `attempt` returns once it neither raises NotYet nor fails in a way that passes.

        Raises DeadlinePassed after `seconds`, or after `role_seconds` of missing rights without a break;
        other errors at once.
        """
        start = self.clock.monotonic()
        forbidden_since: float | None = None
        told = ""
        while True:
            now = self.clock.monotonic()
            try:
                return attempt()
            except (NotYet, HttpResponseError, ServiceRequestError, ServiceResponseError) as error:
                if not self._passes(error):
                    raise
                cause, seen = error, _seen(error)
            forbidden = getattr(cause, "status_code", None) in NOT_ALLOWED
            forbidden_since = (forbidden_since if forbidden_since is not None else now) if forbidden else None
            end = start + self.seconds
            if forbidden_since is not None:
                end = min(end, forbidden_since + self.role_seconds)
            pause = max(self.interval_seconds, _retry_after(cause))
            if now + pause > end:
                raise DeadlinePassed(
                    f"{what}: gave up after {now - start:.0f} s. Last seen: {seen}"
                ) from cause
            if seen != told:
                self.progress(f"{what}: {seen}")
                told = seen
            self.clock.sleep(pause)

    def _passes(self, error: Exception) -> bool:
        status = getattr(error, "status_code", None)
        return status is None or status in NOT_ALLOWED or status in self.again


def _seen(error: Exception) -> str:
    if isinstance(error, HttpResponseError):
        code = error.error.code if error.error and error.error.code else error.reason
        hint = "; waiting for the role assignment to spread" if error.status_code in NOT_ALLOWED else ""
        return f"{error.status_code} {code}{hint}"
    return str(error)


def _retry_after(error: Exception) -> float:
    """The seconds that the server asks to wait, 0 when it does not say."""
    response = getattr(error, "response", None)
    try:
        return float(response.headers.get("Retry-After", 0)) if response is not None else 0.0
    except ValueError:  # a date: rare, and the interval will do
        return 0.0
