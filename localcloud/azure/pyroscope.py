# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's push API, and the queries that tell what arrived. Flame graphs are not computed here."""

import base64
import binascii
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import DecodeError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from localcloud.azure.ingest import Refused, checked_labels, checked_profile, holds_something, invalid
from localcloud.azure.pprof_messages import PushRequest
from localcloud.azure.profile_series import Series, matches, series_of
from localcloud.azure.records import Json
from localcloud.azure.store import Store

JSON_TYPE: Final = "application/json"
PROTO_TYPE: Final = "application/proto"
ACCEPTED: Final = f"{JSON_TYPE}, {PROTO_TYPE}"
VISIBLE_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

PushedSeries = tuple[list[tuple[str, str]], list[bytes]]


class PyroscopeApi:
    """The routes of one Pyroscope over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def routes(self) -> list[BaseRoute]:
        query = "/querier.v1.QuerierService"
        return [
            Route("/ready", lambda request: PlainTextResponse("ready\n")),
            Route("/push.v1.PusherService/Push", self._push, methods=["POST"]),
            Route(f"{query}/ProfileTypes", self._query(self._profile_types), methods=["POST"]),
            Route(f"{query}/LabelNames", self._query(self._label_names), methods=["POST"]),
            Route(f"{query}/LabelValues", self._query(self._label_values), methods=["POST"]),
            Route(f"{query}/Series", self._query(self._series), methods=["POST"]),
        ]

    # Push

    async def _push(self, request: Request) -> Response:
        return await run_in_threadpool(self._pushed, request, await request.body())

    def _pushed(self, request: Request, body: bytes) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in (JSON_TYPE, PROTO_TYPE):
            return Response(status_code=415, headers={"Accept-Post": ACCEPTED})
        packed = request.headers.get("content-encoding") == "gzip"
        try:
            content = gzip.decompress(body) if packed else body
            self._ingest(_series_in_json(content) if kind == JSON_TYPE else _series_in_proto(content))
            answer = b"{}" if kind == JSON_TYPE else b""
            status = 200
        except Refused as refused:
            answer = json.dumps(
                {"code": refused.code, "message": str(refused)}, separators=(",", ":")
            ).encode()
            kind, status = JSON_TYPE, refused.status
        headers = {"Content-Type": kind, **({"Content-Encoding": "gzip"} if packed else {})}
        return Response(gzip.compress(answer) if packed else answer, status, headers)

    def _ingest(self, pushed: Sequence[PushedSeries]) -> None:
        """Keep what is good; what is bad makes the whole push fail nevertheless, with the first reason."""
        if not any(samples for _, samples in pushed):
            raise invalid("no profiles received")
        first: Refused | None = None
        for pairs, samples in pushed:
            try:
                labels = checked_labels(pairs)
                for raw in samples:
                    if holds_something(checked_profile(raw, labels, datetime.now(UTC))):
                        self._store.add_profile(labels, raw)
            except Refused as refused:
                first = first or refused
        if first:
            raise first

    # Queries

    def _query(self, answer: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                asked = json.loads(await request.body() or b"{}")
                return JSONResponse(await run_in_threadpool(answer, asked))
            except ValueError as error:
                return JSONResponse(
                    {"code": "invalid_argument", "message": f"unmarshal message: {error}"}, 400
                )

        return endpoint

    def _profile_types(self, asked: Json) -> Json:
        types = {one.type_id: one for one in self._selected(asked)}
        return {"profileTypes": [types[id].profile_type for id in sorted(types)]}

    def _label_names(self, asked: Json) -> Json:
        names = {name for one in self._selected(asked) for name in one.all_labels}
        return {"names": sorted(name for name in names if VISIBLE_NAME.fullmatch(name))}

    def _label_values(self, asked: Json) -> Json:
        values = {one.all_labels.get(asked.get("name", "")) for one in self._selected(asked)}
        return {"names": sorted(value for value in values if value is not None)}

    def _series(self, asked: Json) -> Json:
        wanted = asked.get("labelNames")
        sets = []
        for one in self._selected(asked):
            labels = {name: value for name, value in one.all_labels.items() if not wanted or name in wanted}
            pairs = [{"name": name, "value": value} for name, value in sorted(labels.items())]
            if pairs and {"labels": pairs} not in sets:
                sets.append({"labels": pairs})
        return {"labelsSet": sets}

    def _selected(self, asked: Json) -> Iterator[Series]:
        """The series of a time range (milliseconds) that fit the matchers."""
        start, end = int(asked.get("start") or 0), int(asked.get("end") or 1 << 62)
        for pushed in self._store.profiles():
            for one in series_of(pushed):
                matchers = asked.get("matchers") or ["{}"]
                if start <= one.milliseconds <= end and any(
                    matches(each, one.all_labels) for each in matchers
                ):
                    yield one


def _series_in_json(content: bytes) -> list[PushedSeries]:
    try:
        parsed: Any = json.loads(content)
        series = parsed.get("series") or []
        return [
            (_pairs(one.get("labels") or []), [_raw(sample) for sample in one.get("samples") or []])
            for one in series
        ]
    except (ValueError, AttributeError, KeyError, TypeError, binascii.Error) as error:
        raise invalid(f"unmarshal message: {error}") from error


def _pairs(labels: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    return [(str(label.get("name", "")), str(label.get("value", ""))) for label in labels]


def _raw(sample: Mapping[str, str]) -> bytes:
    return base64.b64decode(sample.get("rawProfile", ""), validate=True)


def _series_in_proto(content: bytes) -> list[PushedSeries]:
    try:
        pushed = PushRequest.FromString(content)
    except DecodeError as error:
        raise invalid(f"unmarshal message: {error}") from error
    return [
        ([(label.name, label.value) for label in one.labels], [sample.raw_profile for sample in one.samples])
        for one in pushed.series
    ]
