# SPDX-License-Identifier: Apache-2.0
"""The series that a pushed profile makes in Pyroscope: one for each sample type and set of labels. Pure."""

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from localcloud.azure.ingest import GZIP_MAGIC
from localcloud.azure.pprof_messages import Profile
from localcloud.azure.records import PushedProfile

_MATCHER: Final = re.compile(r'\s*([^\s=!~,{}]+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series, at the time of one profile."""

    labels: Mapping[str, str]
    sample_type: str
    sample_unit: str
    period_type: str
    period_unit: str
    milliseconds: int

    @property
    def type_id(self) -> str:
        parts = (
            self.labels["__name__"],
            self.sample_type,
            self.sample_unit,
            self.period_type,
            self.period_unit,
        )
        return ":".join(parts)

    @property
    def profile_type(self) -> dict[str, str]:
        """As ProfileTypes answers."""
        return {
            "ID": self.type_id,
            "name": self.labels["__name__"],
            "sampleType": self.sample_type,
            "sampleUnit": self.sample_unit,
            "periodType": self.period_type,
            "periodUnit": self.period_unit,
        }

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels, with those that Pyroscope adds."""
        return {
            **{name: value for name, value in self.labels.items() if name != "__delta__"},
            "__period_type__": self.period_type,
            "__period_unit__": self.period_unit,
            "__profile_type__": self.type_id,
            "__service_name__": self.labels["service_name"],
            "__type__": self.sample_type,
            "__unit__": self.sample_unit,
        }


def series_of(pushed: PushedProfile) -> Iterator[Series]:
    """The series of a profile that was accepted: string labels of samples count, zeros do not."""
    data = gzip.decompress(pushed.pprof) if pushed.pprof.startswith(GZIP_MAGIC) else pushed.pprof
    profile: Any = Profile.FromString(data)
    text = profile.string_table
    at = profile.time_nanos // 1_000_000 or int(pushed.received.timestamp() * 1000)
    period = profile.period_type if profile.HasField("period_type") else None
    for index, kind in enumerate(profile.sample_type):
        sets: dict[tuple[tuple[str, str], ...], None] = {}
        for sample in profile.sample:
            if sample.value[index] > 0:
                own = {text[label.key]: text[label.str] for label in sample.label if label.str}
                sets[tuple(sorted({**own, **pushed.labels}.items()))] = None
        for labels in sets:
            yield Series(
                labels=dict(labels),
                sample_type=text[kind.type],
                sample_unit=text[kind.unit],
                period_type=text[period.type] if period else "",
                period_unit=text[period.unit] if period else "",
                milliseconds=at,
            )


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a selector such as `{service_name="s", pod=~"a.*"}`. Raises ValueError if it is none."""
    inner = selector.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise ValueError(f"parse error: unexpected {selector!r}")
    inner, position = inner[1:-1], 0
    while inner[position:].strip():
        found = _MATCHER.match(inner, position)
        if found is None:
            raise ValueError(f"parse error: unexpected {inner[position:]!r}")
        name, operator, wanted = found.groups()
        value = labels.get(name, "")
        equal = re.fullmatch(wanted, value) is not None if "~" in operator else value == wanted
        if equal != (not operator.startswith("!")):
            return False
        position = found.end()
    return True
