# SPDX-License-Identifier: Apache-2.0
"""What the store keeps, as values. JSON objects are plain dicts; identifiers keep the spelling they were given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of Azure Resource Manager.

    `token` is Pulumi's (`azure-native:network:PrivateLinkService`). `inputs` is what was asked for and
    `outputs` what Azure shows, both in the shape of Pulumi's SDK: camelCase, and ARM's `properties` flattened where
    the SDK flattens them.
    """

    id: str
    token: str
    inputs: Json = field(default_factory=dict)
    outputs: Json = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrafanaObject:
    """Something in a Grafana workspace: `kind` is `datasources`, `dashboards` or `folders`, `body` Grafana's JSON."""

    workspace_id: str
    kind: str
    uid: str
    body: Json

    @property
    def id(self) -> str:
        """The name under which it stands in the event log."""
        return f"{self.workspace_id}/{self.kind}/{self.uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedProfile:
    """One profile as it reached Pyroscope: its series' labels, and the pprof bytes as they were sent."""

    received: datetime
    labels: Mapping[str, str]
    pprof: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change that `actor` made; `verb` is create, update, delete, approve, reject or refresh."""

    time: datetime
    actor: str
    verb: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How requests are to fail: those whose method and path match, `times` times (None: always).

    `method` is an HTTP method, or `*`. `path` is a regular expression, searched in the path of the request without
    regard to case. The provider's calls count as what Azure would see: create and update are PUT, delete is DELETE,
    read and lookups are GET, with the resource's id as path.
    With `each`, `times` counts for every path by itself.
    With `after`, the change is made and then reported as failed: an operation that ends badly, or a lost answer.
    With `UNANSWERED`, the caller gets no answer, and waits for one as long as it lives; with `CUT_OFF`, the connection
    ends in the midst of the answer.
    azure-native repeats 408, 429, 5xx and what was cut off three times by itself: for it, such a rule counts from the
    fourth time on.
    """

    method: str
    path: str
    status: int
    code: str
    message: str = "Injected by a fault rule of the local cloud."
    retry_after_seconds: int | None = None
    times: int | None = 1
    each: bool = False
    after: bool = False


UNANSWERED: Final = 0
"""The status of a fault rule whose requests hang."""

CUT_OFF: Final = -1
"""The status of a fault rule whose answers do not arrive whole."""
