# SPDX-License-Identifier: Apache-2.0
"""What the dynamic providers share: Grafana for a resource's properties, and what a diff and a refresh answer."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pulumi.dynamic import DiffResult, ReadResult

from .credentials import GRAFANA_SCOPE, credential
from .grafana_api import AGAIN, GrafanaApi, held
from .patience import DeadlinePassed, Patience, to_stderr
from .private_address import SECONDS, NotReachable, await_private_address, leads_nowhere

Props = dict[str, Any]

LOOK_SECONDS: Final = 20.0
"""How long a refresh tries to look into Grafana: nothing was just made that would have to spread."""


def grafana_of(props: Props) -> GrafanaApi:
    """The workspace in which a resource is. Raises NotReachable for a private one that is not reached from here."""
    if props.get("private"):
        await_private_address(props["endpoint"], Patience(seconds=SECONDS))
    return _grafana(props, Patience(again=AGAIN))


def _grafana(props: Props, patience: Patience) -> GrafanaApi:
    return GrafanaApi(props["endpoint"], credential=credential(), scope=GRAFANA_SCOPE, patience=patience)


def looked_at(id_: str, props: Props, look: Callable[[GrafanaApi], ReadResult]) -> ReadResult:
    """What a refresh answers: what `look` finds, and nothing when the workspace's name leads nowhere any more.

    A workspace that does not answer, or not to us, may have lost its endpoint or our role. Both are resources of the
    stack, and a refresh that failed here would keep `up` from mending them: what is in the workspace stays as the
    state has it, and it is said that nobody looked.
    """
    if leads_nowhere(props["endpoint"]):
        return gone()
    patience = Patience(seconds=LOOK_SECONDS, role_seconds=LOOK_SECONDS, again=AGAIN)
    try:
        if props.get("private"):
            await_private_address(props["endpoint"], patience)
        with _grafana(props, patience) as grafana:
            return look(grafana)
    except (NotReachable, DeadlinePassed) as error:
        to_stderr(
            f"warning: {id_} in {props['endpoint']} was not looked at, and is taken to be as it was: {error}. "
            "A lost endpoint or role is made anew by `pulumi up`; after it, run `pulumi refresh` again."
        )
        return ReadResult(id_, props)


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
