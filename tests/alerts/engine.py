# SPDX-License-Identifier: Apache-2.0
"""Asks Prometheus' own rule engine which alerts fire over made-up series."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.rules import Alert, rule_file
from localcloud.toolchain import programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One alert that fires. `labels` are those of its series, without the name and the severity."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float


def firing(
    rules: Sequence[Alert], series: Mapping[str, str], at: str, *, interval: str, folder: Path
) -> list[Firing]:
    """What fires `at` a time from the start. Values are in the notation of Prometheus' rule tests, one an interval:
    `0+1x10` is eleven of them, `_` none.

    https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/#series
    """
    file = folder / "rules.json"
    file.write_text(json.dumps(rule_file(rules)))
    question = {
        "interval": interval,
        "series": [{"series": name, "values": values} for name, values in series.items()],
        "at": [at],
    }
    command = [str(programs.rule_engine().path), str(file)]
    done = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout).values()
    return [_firing(alert) for alert in answer]


def _firing(alert: Mapping[str, Mapping[str, str]]) -> Firing:
    labels = {key: value for key, value in alert["labels"].items() if key not in ("alertname", "severity")}
    return Firing(
        name=alert["labels"]["alertname"],
        labels=labels,
        annotations=alert["annotations"],
        value=float(alert["value"]),  # type: ignore[arg-type]
    )
