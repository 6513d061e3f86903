# SPDX-License-Identifier: Apache-2.0
"""What a dashboard's queries are answered with: of Pyroscope, when which profiles arrived; of Prometheus, zero.

No cluster is scraped here, so no metric has another value.
"""

import re
import time
from typing import Final

from localcloud.azure.grafana_content import SOURCES
from localcloud.azure.grafana_health import data_source_health
from localcloud.azure.profile_series import matches, series_of
from localcloud.azure.records import Json, Resource
from localcloud.azure.store import Store

RELATIVE: Final = re.compile(r"now(?:-(\d+)([smh]))?")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def results(body: Json, workspace: Resource, store: Store) -> Json:
    """The answers by `refId`; one that failed does not keep the others from being given."""
    start, end = _milliseconds(body.get("from")), _milliseconds(body.get("to"))
    return {
        query.get("refId", "A"): _answer(query, start, end, workspace, store)
        for query in body.get("queries", ())
    }


def _answer(query: Json, start: int, end: int, workspace: Resource, store: Store) -> Json:
    uid = (query.get("datasource") or {}).get("uid", "")
    source = store.grafana_object(workspace.id, SOURCES, uid)
    if source is None:
        return {"error": "data source not found", "status": 404}
    if problem := data_source_health(source.body, workspace, store):
        return {"error": problem, "status": 502}
    if source.body["type"] == "prometheus":
        return {"status": 200, "frames": [_frame([[end], [0]])]}
    selector = query.get("labelSelector", "{}")
    times = sorted(
        one.milliseconds
        for pushed in store.profiles()
        for one in series_of(pushed)
        if one.type_id == query.get("profileTypeId")
        and start <= one.milliseconds <= end
        and matches(selector, one.all_labels)
    )
    # How much was in them is not computed: that something was is all that is told.
    return {"status": 200, "frames": [_frame([times, [1] * len(times)])]}


def _frame(columns: list[list[int]]) -> Json:
    fields = [{"name": "time", "type": "time"}, {"name": "value", "type": "number"}]
    return {"schema": {"refId": "A", "fields": fields}, "data": {"values": columns}}


def _milliseconds(when: object) -> int:
    """A moment as Grafana writes it: `now-5m`, or milliseconds as text."""
    now = int(time.time() * 1000)
    relative = RELATIVE.fullmatch(str(when))
    if relative is None:
        return int(str(when)) if str(when).isdigit() else now
    amount, unit = relative.groups()
    return now - (int(amount) * SECONDS[unit] * 1000 if amount else 0)
