# SPDX-License-Identifier: Apache-2.0
"""The push API, against answers that were measured on real servers."""

import base64
import gzip
import json
import time
from typing import Any

import httpx
import pytest

from localcloud.azure.pprof_messages import Profile, PushRequest
from localcloud.azure.server import Servers
from localcloud.azure.store import Store

PUSH = "/push.v1.PusherService/Push"
LABELS = {"__name__": "gpu_memory", "service_name": "svc"}


def _profile(
    values: tuple[int, ...] = (1, 100),
    *,
    types: tuple[tuple[str, str], ...] = (("inuse_objects", "count"), ("inuse_space", "bytes")),
    nanoseconds: int | None = None,
    samples: int = 1,
    labels: dict[str, str] | None = None,
) -> bytes:
    strings = ["", "space", "bytes"]

    def text(value: str) -> int:
        if value not in strings:
            strings.append(value)
        return strings.index(value)

    profile = Profile(time_nanos=time.time_ns() if nanoseconds is None else nanoseconds, period=1)
    for kind, unit in types:
        profile.sample_type.add(type=text(kind), unit=text(unit))
    profile.period_type.type, profile.period_type.unit = 1, 2
    for number in range(samples):
        sample = profile.sample.add(location_id=[number + 1], value=values)
        for key, value in (labels or {}).items():
            sample.label.add(key=text(key), str=text(value))
    profile.string_table.extend(strings)
    return gzip.compress(profile.SerializeToString())


def _series(pprof: bytes, labels: dict[str, str] | list[tuple[str, str]] = LABELS) -> Any:
    pairs = labels.items() if isinstance(labels, dict) else labels
    return {
        "labels": [{"name": name, "value": value} for name, value in pairs],
        "samples": [{"rawProfile": base64.b64encode(pprof).decode()}],
    }


def _push(servers: Servers, *series: Any, **more: Any) -> httpx.Response:
    return httpx.post(servers.pyroscope + PUSH, json={"series": list(series)}, **more)


def _refusal(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["code"], body["message"]


def test_it_is_ready(servers: Servers) -> None:
    answer = httpx.get(f"{servers.pyroscope}/ready")
    assert (answer.status_code, answer.text) == (200, "ready\n")


def test_a_good_profile_is_taken_and_kept_as_it_was_sent(servers: Servers, store: Store) -> None:
    pprof = _profile()
    answer = _push(servers, _series(pprof))
    assert (answer.status_code, answer.content) == (200, b"{}")
    assert answer.headers["content-type"] == "application/json"
    (kept,) = store.profiles()
    assert kept.pprof == pprof and kept.labels == LABELS


def test_a_profile_need_not_be_compressed(servers: Servers, store: Store) -> None:
    assert _push(servers, _series(gzip.decompress(_profile()))).status_code == 200
    assert len(store.profiles()) == 1


def test_a_compressed_request_gets_a_compressed_answer(servers: Servers) -> None:
    body = gzip.compress(json.dumps({"series": [_series(_profile())]}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Accept-Encoding": "identity"}
    answer = httpx.post(servers.pyroscope + PUSH, content=body, headers=headers)
    assert answer.status_code == 200 and answer.headers["content-encoding"] == "gzip"
    assert answer.content == b"{}"


def test_protobuf_is_taken_too(servers: Servers, store: Store) -> None:
    request = PushRequest()
    series = request.series.add()
    for name, value in LABELS.items():
        series.labels.add(name=name, value=value)
    series.samples.add(raw_profile=_profile())
    headers = {"Content-Type": "application/proto"}
    answer = httpx.post(servers.pyroscope + PUSH, content=request.SerializeToString(), headers=headers)
    assert (answer.status_code, answer.content) == (200, b"")
    assert len(store.profiles()) == 1


def test_other_content_types_and_methods_are_refused(servers: Servers) -> None:
    answer = httpx.post(servers.pyroscope + PUSH, content=b"{}", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.content) == (415, b"")
    assert "application/json" in answer.headers["accept-post"]
    get = httpx.get(servers.pyroscope + PUSH)
    assert get.status_code == 405 and get.headers["allow"] == "POST"


def test_the_name_is_required_and_the_service_is_not(servers: Servers, store: Store) -> None:
    answer = _push(servers, _series(_profile(), {"service_name": "s"}))
    message = "invalid labels '{service_name=\"s\"}' with error: invalid metric name"
    assert _refusal(answer) == (400, "invalid_argument", message)
    assert _push(servers, _series(_profile(), {"__name__": "gpu_memory"})).status_code == 200
    assert store.profiles()[0].labels["service_name"] == "unknown_service"


def test_nothing_to_push_is_refused(servers: Servers) -> None:
    bodies: list[Any] = [{}, {"series": []}, {"serie": []}]
    for body in bodies:
        answer = httpx.post(servers.pyroscope + PUSH, json=body)
        assert _refusal(answer) == (400, "invalid_argument", "no profiles received")


@pytest.mark.parametrize(
    "content", [b"{", b'{"series":[{"samples":[{"rawProfile":"?"}]}]}', b'{"series":"x"}']
)
def test_what_is_no_push_request_is_refused(servers: Servers, content: bytes) -> None:
    answer = httpx.post(
        servers.pyroscope + PUSH, content=content, headers={"Content-Type": "application/json"}
    )
    status, code, message = _refusal(answer)
    assert (status, code) == (400, "invalid_argument") and message.startswith("unmarshal message: ")


@pytest.mark.parametrize(
    ("pprof", "message"),
    [
        (b"", "gzip reset: EOF"),
        (_profile()[:-12], "copy to buffer: unexpected EOF"),
        (b"not pprof at all", "proto: "),
    ],
    ids=["empty", "cut", "something else"],
)
def test_a_broken_profile_is_answered_with_500(servers: Servers, pprof: bytes, message: str) -> None:
    """Pyroscope's own way: a client that repeats every 500 would never end."""
    status, code, text = _refusal(_push(servers, _series(pprof)))
    assert (status, code) == (500, "unknown") and text.startswith(message)


def test_labels_are_limited(servers: Servers) -> None:
    many = {**LABELS, **{f"label_{number}": "x" for number in range(29)}}
    status, _, message = _refusal(_push(servers, _series(_profile(), many)))
    assert status == 400 and message.endswith("has 31 label names; limit 30")
    assert _push(servers, _series(_profile(), dict(list(many.items())[:30]))).status_code == 200
    _, _, message = _refusal(_push(servers, _series(_profile(), {**LABELS, "a": "x" * 2049})))
    assert "has label value too long: " in message
    _, _, message = _refusal(_push(servers, _series(_profile(), [*LABELS.items(), ("a", "1"), ("a", "2")])))
    assert message.endswith("has duplicate label name: 'a'")


def test_samples_must_fit_their_types(servers: Servers) -> None:
    assert _refusal(_push(servers, _series(_profile((), types=()))))[2] == "empty profile"
    assert _refusal(_push(servers, _series(_profile((1,)))))[2] == "sample value length mismatch"
    dashed = _profile((1,), types=(("in-use", "bytes"),))
    assert _refusal(_push(servers, _series(dashed)))[2] == "sample type contains -"


def test_the_time_must_be_near(servers: Servers) -> None:
    now = time.time_ns()
    minute = 60 * 10**9
    for minutes, status in ((-59, 200), (9, 200), (-61, 400), (11, 400)):
        answer = _push(servers, _series(_profile(nanoseconds=now + minutes * minute)))
        assert answer.status_code == status
    assert (
        "is outside of ingestion window (profile timestamp: 1970-01-01"
        in _refusal(_push(servers, _series(_profile(nanoseconds=1))))[2]
    )
    assert _push(servers, _series(_profile(nanoseconds=0))).status_code == 200


def test_a_profile_has_a_largest_number_of_samples(servers: Servers) -> None:
    assert _push(servers, _series(_profile(samples=16_000))).status_code == 200
    status, _, message = _refusal(_push(servers, _series(_profile(samples=16_001))))
    assert status == 400 and "(max_profile_stacktrace_samples, actual: 16001, limit: 16000)" in message


def test_a_profile_over_two_mebibytes_never_passes_and_one_over_four_is_an_error(servers: Servers) -> None:
    large = _profile(labels={"text": "x" * 2_200_000})
    for _ in range(2):
        status, code, message = _refusal(_push(servers, _series(large)))
        assert (status, code) == (429, "resource_exhausted")
        assert message == "push rate limit (4.0 MiB) exceeded while adding 2.1 MiB"
    answer = _push(servers, _series(_profile(labels={"text": "x" * 4_300_000})))
    assert _refusal(answer)[2] == "uncompressed profile payload size exceeds limit of 4.2 MB"


def test_one_bad_series_fails_the_push_but_the_good_ones_are_kept(servers: Servers, store: Store) -> None:
    answer = _push(servers, _series(_profile(), {"service_name": "s"}), _series(_profile()))
    assert answer.status_code == 400
    assert len(store.profiles()) == 1


def test_a_profile_of_zeros_is_taken_and_leaves_no_trace(servers: Servers, store: Store) -> None:
    assert _push(servers, _series(_profile((0, 0)))).status_code == 200
    assert store.profiles() == []


def _ask(servers: Servers, what: str, **body: Any) -> Any:
    answer = httpx.post(f"{servers.pyroscope}/querier.v1.QuerierService/{what}", json=body)
    assert answer.status_code == 200
    return answer.json()


def test_profile_types_have_the_documented_ids(servers: Servers) -> None:
    _push(servers, _series(_profile()))
    now = int(time.time() * 1000)
    types = _ask(servers, "ProfileTypes", start=now - 60_000, end=now + 60_000)["profileTypes"]
    assert [one["ID"] for one in types] == [
        "gpu_memory:inuse_objects:count:space:bytes",
        "gpu_memory:inuse_space:bytes:space:bytes",
    ]
    assert types[1] == {
        "ID": "gpu_memory:inuse_space:bytes:space:bytes",
        "name": "gpu_memory",
        "sampleType": "inuse_space",
        "sampleUnit": "bytes",
        "periodType": "space",
        "periodUnit": "bytes",
    }
    assert _ask(servers, "ProfileTypes", start=now - 120_000, end=now - 60_000)["profileTypes"] == []


def test_string_labels_of_samples_are_labels_of_series(servers: Servers) -> None:
    _push(
        servers,
        _series(_profile(labels={"device": "0", "service_name": "other"}), {**LABELS, "pod.name": "p"}),
    )
    assert _ask(servers, "LabelValues", name="device")["names"] == ["0"]
    assert _ask(servers, "LabelValues", name="service_name")["names"] == ["svc"], "labels of the series win"
    names = _ask(servers, "LabelNames")["names"]
    assert "device" in names and "__profile_type__" in names
    assert "pod.name" not in names, "Pyroscope hides names that are not plain"


def test_series_can_be_selected_by_labels(servers: Servers) -> None:
    for service in ("a", "b"):
        _push(servers, _series(_profile(), {**LABELS, "service_name": service}))
    answer = _ask(
        servers,
        "Series",
        matchers=['{service_name=~"a|c", __type__!="x"}'],
        labelNames=["service_name", "__type__"],
    )
    assert answer["labelsSet"] == [
        {"labels": [{"name": "__type__", "value": kind}, {"name": "service_name", "value": "a"}]}
        for kind in ("inuse_objects", "inuse_space")
    ]
