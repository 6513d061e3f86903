# SPDX-License-Identifier: Apache-2.0
"""Checks of what Grafana shows: data sources, the dashboard, and that a fresh profile is there to be drawn."""

import time
from collections.abc import Mapping
from typing import Any, Final

from gpuheap.contract import IN_USE_BYTES, profile_type_id

from .model import CheckFailed, Live, NothingToCheck

FRESH_SECONDS: Final = 60
GADGET_PROFILE: Final = "process_cpu:malloc:bytes::"


def pyroscope_data_source(live: Live) -> str:
    source = live.grafana.get(f"datasources/uid/{live.output('pyroscopeDataSourceUid')}")
    if source.get("type") != "grafana-pyroscope-datasource":
        raise CheckFailed(f"its type is {source.get('type')}")
    if source.get("url") != live.output("pyroscopeUrl"):
        raise CheckFailed(f"its URL is {source.get('url')}, not {live.output('pyroscopeUrl')}")
    return f"{source['name']} -> {source['url']}"


def prometheus_data_source(live: Live) -> str:
    source = live.grafana.get(f"datasources/uid/{live.output('prometheusDataSourceUid')}")
    credentials = (source.get("jsonData") or {}).get("azureCredentials") or {}
    if credentials.get("authType") != "msi":
        raise CheckFailed("it does not authenticate with the managed identity")
    return f"{source['name']} -> {source['url']}"


def pyroscope_health(live: Live) -> str:
    return _health(live, live.output("pyroscopeDataSourceUid"))


def prometheus_health(live: Live) -> str:
    return _health(live, live.output("prometheusDataSourceUid"))


def _health(live: Live, uid: str) -> str:
    """Grafana's own check: it asks the data source something, over the way that dashboards use."""
    answer = live.grafana.get(f"datasources/uid/{uid}/health")
    if answer.get("status") != "OK":
        raise CheckFailed(f"Grafana says: {answer.get('message')}")
    return str(answer.get("message"))


def dashboard(live: Live) -> str:
    url = live.output("dashboardUrl")
    uid = url.rstrip("/").split("/d/")[1].split("/")[0]
    found: dict[str, Any] = live.grafana.get(f"dashboards/uid/{uid}")
    return str(found["dashboard"]["title"])


def dashboard_page(live: Live) -> str:
    url = live.output("dashboardUrl")
    live.grafana.page(url)
    return url


def fresh_profile(live: Live) -> str:
    """Asks as the dashboard's flame graph does. Without memory in use there is no profile to be fresh."""
    wanted = profile_type_id("inuse_space") if live.has_profiler("gpuheap") else GADGET_PROFILE
    query = {
        "datasource": {"uid": live.output("pyroscopeDataSourceUid"), "type": "grafana-pyroscope-datasource"},
        "queryType": "metrics",
        "profileTypeId": wanted,
        "labelSelector": "{}",
        "groupBy": [],
    }
    newest = _newest(_ask(live, query, FRESH_SECONDS))
    if newest is not None:
        return f"{wanted}: {max(0, time.time() - newest / 1000):.0f} s old"
    if _in_use(live) == 0:
        raise NothingToCheck("no process holds GPU memory: there is nothing to profile")
    raise CheckFailed(f"no profile of type {wanted} in the last {FRESH_SECONDS} s")


def _in_use(live: Live) -> float | None:
    """Bytes in use on all nodes by the metrics; None when there are no metrics."""
    query = {
        "datasource": {"uid": live.output("prometheusDataSourceUid"), "type": "prometheus"},
        "expr": f"sum({IN_USE_BYTES})",
        "instant": True,
    }
    values = [value for _, value in _points(_ask(live, query, FRESH_SECONDS)) if value is not None]
    return max(values, default=None)


def _ask(live: Live, query: Mapping[str, Any], seconds: int) -> dict[str, Any]:
    body = {"queries": [{"refId": "A", **query}], "from": f"now-{seconds}s", "to": "now"}
    answer: dict[str, Any] = (live.grafana.query(body).get("results") or {}).get("A") or {}
    if answer.get("error"):
        raise CheckFailed(f"the query was answered with: {answer['error']}")
    return answer


def _newest(answer: Mapping[str, Any]) -> float | None:
    """Milliseconds of the newest value that is not zero."""
    return max((at for at, value in _points(answer) if value), default=None)


def _points(answer: Mapping[str, Any]) -> list[tuple[float, float | None]]:
    """Time and value of each point in Grafana's data frames: the columns of an answer."""
    found: list[tuple[float, float | None]] = []
    for frame in answer.get("frames") or ():
        columns: list[list[float]] = (frame.get("data") or {}).get("values") or []
        if len(columns) >= 2:
            found += zip(columns[0], columns[1], strict=False)
    return found
