# SPDX-License-Identifier: Apache-2.0
"""What the dynamic providers share: Grafana for a resource's properties, and what a diff and a refresh answer."""

import json
from collections.abc import Mapping
from typing import Any

from pulumi.dynamic import DiffResult, ReadResult

from .credentials import GRAFANA_SCOPE, credential
from .grafana_api import AGAIN, GrafanaApi, held
from .patience import Patience
from .private_address import SECONDS, await_private_address

Props = dict[str, Any]


def grafana_of(props: Props) -> GrafanaApi:
    """The workspace in which a resource is. Raises NotReachable for a private one that is not reached from here."""
    if props.get("private"):
        await_private_address(props["endpoint"], Patience(seconds=SECONDS))
    return GrafanaApi(
        props["endpoint"], credential=credential(), scope=GRAFANA_SCOPE, patience=Patience(again=AGAIN)
    )


def gone() -> ReadResult:
    """The answer to a refresh of what is no longer there: without an id, the engine drops it and makes it
    anew.
    """
    return ReadResult("", {})


def as_found(id_: str, props: Props, found: Mapping[str, Any] | None) -> ReadResult:
    """The state after a refresh: the definition as Grafana holds it, or nothing when it is gone."""
    if found is None:
        return gone()
    definition = json.dumps(held(json.loads(props["definition"]), found), sort_keys=True)
    return ReadResult(id_, {**props, "definition": definition})


def content_diff(olds: Props, news: Props) -> DiffResult:
    replaces = changed(olds, news, "endpoint", "uid")
    changes = (
        bool(replaces)
        or _parsed(olds.get("definition")) != _parsed(news.get("definition"))
        or bool(changed(olds, news, "folder"))
    )
    return DiffResult(changes=changes, replaces=replaces)


def _parsed(definition: Any) -> Any:
    """What a definition means, however it is written. One that is not known yet stays as it is."""
    return json.loads(definition) if isinstance(definition, str) else definition


def changed(olds: Props, news: Props, *keys: str) -> list[str]:
    """The keys whose values differ. A value that is not known yet differs from every other."""
    return [key for key in keys if olds.get(key) != news.get(key)]
