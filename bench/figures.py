# SPDX-License-Identifier: Apache-2.0
"""What is reported: figures with their unit and spread, and how they come from repeated measurements. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class BadMeasurement(ValueError):
    """Numbers from which no figure can be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`value` is a median, `low` and `high` are the quartiles around it; all the same for what was read once."""

    name: str
    value: float
    unit: str
    low: float
    high: float

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "quartiles": [round(self.low, 4), round(self.high, 4)],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`notes` say what was left out and why, or what the figures are of."""

    figures: list[Figure]
    notes: list[str]


def single(name: str, value: float, unit: str) -> Figure:
    return Figure(name=name, value=value, unit=unit, low=value, high=value)


def median(name: str, samples: Sequence[float], unit: str) -> Figure:
    """Raises BadMeasurement without samples."""
    if not samples:
        raise BadMeasurement(f"{name}: nothing was measured")
    low, high = _quartiles(samples)
    return Figure(name=name, value=statistics.median(samples), unit=unit, low=low, high=high)


def ratio(name: str, samples: Sequence[float], floor: Sequence[float]) -> Figure:
    """Median over median. Its spread is that of the ratios of samples that were taken one after the other.

    Raises BadMeasurement when the two do not belong together, or the floor is not above zero.
    """
    if len(samples) != len(floor):
        raise BadMeasurement(f"{name}: {len(samples)} samples over {len(floor)} of the floor")
    if not samples:
        raise BadMeasurement(f"{name}: nothing was measured")
    if min(floor) <= 0:
        raise BadMeasurement(f"{name}: the floor has a sample of {min(floor)}, it must be above zero")
    low, high = _quartiles([above / below for above, below in zip(samples, floor, strict=True)])
    return Figure(
        name=name,
        value=statistics.median(samples) / statistics.median(floor),
        unit="ratio",
        low=low,
        high=high,
    )


def document(machine: Mapping[str, Any], figures: Sequence[Figure]) -> dict[str, Any]:
    """What `build/bench.json` holds. Raises BadMeasurement when two figures have one name."""
    names = [figure.name for figure in figures]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadMeasurement(f"more than one figure named {', '.join(sorted(twice))}")
    return {"machine": dict(machine), "results": [figure.as_json() for figure in figures]}


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) == 1:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high
