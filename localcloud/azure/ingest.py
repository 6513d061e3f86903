# SPDX-License-Identifier: Apache-2.0
"""What Pyroscope takes and what it refuses, one pushed series at a time. Pure.

Measured on servers of both storage architectures; limits are the defaults. The rate limit is only what no waiting
can help: a profile that is larger than the burst.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError

from localcloud.azure.pprof_messages import Profile

MAX_LABELS: Final = 30
MAX_NAME_BYTES: Final = 1024
MAX_VALUE_BYTES: Final = 2048
MAX_SAMPLES: Final = 16_000
MAX_BYTES: Final = 4 << 20
BURST_BYTES: Final = 2 << 20
OLDEST: Final = timedelta(hours=1)
NEWEST: Final = timedelta(minutes=10)
GZIP_MAGIC: Final = b"\x1f\x8b"
UNKNOWN_SERVICE: Final = "unknown_service"


class Refused(Exception):
    """Not taken; `status` is HTTP's and `code` Connect's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def invalid(message: str) -> Refused:
    return Refused(400, "invalid_argument", message)


def checked_labels(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The labels of a series, with a service name. Raises Refused."""
    shown = shown_labels(pairs)
    if len(pairs) > MAX_LABELS:
        raise invalid(f"profile series '{shown}' has {len(pairs)} label names; limit {MAX_LABELS}")
    labels = dict(pairs)
    if not labels.get("__name__"):
        raise invalid(f"invalid labels '{shown}' with error: invalid metric name")
    seen: set[str] = set()
    for name, value in pairs:
        if len(name.encode()) > MAX_NAME_BYTES:
            raise invalid(f"profile with labels '{shown}' has label name too long: '{name}'")
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise invalid(f"profile with labels '{shown}' has label value too long: '{value}'")
        if name in seen:
            raise invalid(f"profile with labels '{shown}' has duplicate label name: '{name}'")
        seen.add(name)
    return {"service_name": UNKNOWN_SERVICE, **labels}


def checked_profile(raw: bytes, labels: Mapping[str, str], now: datetime) -> Any:
    """The profile in a sample, decoded. Raises Refused."""
    data = _plain(raw)
    try:
        profile = Profile.FromString(data)
    except DecodeError as error:
        raise Refused(500, "unknown", f"proto: Profile: {error}") from error
    shown = shown_labels(sorted(labels.items()))
    if not profile.sample_type:
        raise invalid("empty profile")
    if any(len(sample.value) != len(profile.sample_type) for sample in profile.sample):
        raise invalid("sample value length mismatch")
    if any("-" in profile.string_table[one.type] for one in profile.sample_type):
        raise invalid("sample type contains -")
    if len(profile.sample) > MAX_SAMPLES:
        raise invalid(
            f"the profile with labels '{shown}' exceeds the samples count limit (max_profile_stacktrace_samples,"
            f" actual: {len(profile.sample)}, limit: {MAX_SAMPLES})"
        )
    _check_time(profile.time_nanos, shown, now)
    size = len(data) + sum(len(name) + len(value) for name, value in labels.items())
    if size > BURST_BYTES:
        message = f"push rate limit (4.0 MiB) exceeded while adding {size / (1 << 20):.1f} MiB"
        raise Refused(429, "resource_exhausted", message)
    return profile


def holds_something(profile: Any) -> bool:
    """A profile of zeros is accepted, and leaves no trace."""
    return any(value > 0 for sample in profile.sample for value in sample.value)


def _plain(raw: bytes) -> bytes:
    if not raw:
        raise Refused(500, "unknown", "gzip reset: EOF")
    if not raw.startswith(GZIP_MAGIC):
        data = raw
    else:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            data = unpacker.decompress(raw, MAX_BYTES + 1)
        except zlib.error as error:
            raise Refused(500, "unknown", f"copy to buffer: {error}") from error
        if not unpacker.eof and len(data) <= MAX_BYTES:
            raise Refused(500, "unknown", "copy to buffer: unexpected EOF")
    if len(data) > MAX_BYTES:
        raise invalid("uncompressed profile payload size exceeds limit of 4.2 MB")
    return data


def _check_time(nanoseconds: int, shown: str, now: datetime) -> None:
    if nanoseconds == 0:  # the server's own time is taken
        return
    at = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    first, last = now - OLDEST, now + NEWEST
    if not first <= at <= last:
        raise invalid(
            f"profile with labels '{shown}' is outside of ingestion window (profile timestamp: {_go_time(at)},"
            f" the ingestion window starts at {_go_time(first)} and ends at {_go_time(last)})"
        )


def _go_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} +0000 UTC"


def shown_labels(pairs: Sequence[tuple[str, str]]) -> str:
    """`{name="value", ...}`"""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in pairs) + "}"
