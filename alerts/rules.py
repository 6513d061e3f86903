# SPDX-License-Identifier: Apache-2.0
"""The alert rules, as values: what is asked of the metrics, for how long, and what it means.

Pure: `components/alerts.py` gives them to Azure Monitor, and the tests to Prometheus' own rule engine. The names of
our metrics are the agent's contract; those of other exporters stand here with their source. What to do about an alert
is in `docs/runbook.md`, under the alert's name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from gpuheap import contract
from gpuheap.heap.model import MemoryKind

Severity = Literal[0, 1, 2, 3, 4]
"""Azure's: 0 critical, 1 error, 2 warning, 3 informational, 4 verbose."""

OUT_OF_MEMORY_CODE: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY, https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"""

# https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html, in MiB; there where the exporter is
# scraped.
DCGM_USED: Final = "DCGM_FI_DEV_FB_USED"
DCGM_FREE: Final = "DCGM_FI_DEV_FB_FREE"

RUNBOOK: Final = "docs/runbook.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule. `runbook` is where its way out is described, `summary` may use `{{ $labels.… }}` and `{{ $value }}`."""

    name: str
    expression: str
    for_minutes: int
    severity: Severity
    summary: str
    runbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The memory of each GPU, or MIG slice, on the nodes whose names match a regular expression."""

    nodes: str
    gpu_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    capacities: Sequence[Capacity] = ()
    near_capacity_percent: int = 90
    growth_bytes: int = 256 << 20
    """Floors that rise by less than this in two hours are no growth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The objects of the cluster that must run, and which profilers there are."""

    agent: str | None
    """`namespace/name` of our DaemonSet; None without our agent."""
    gadget: str | None
    """`namespace/name` of Inspektor Gadget's; None without the extension."""
    pyroscope_namespace: str


def alerts(thresholds: Thresholds, watched: Watched, *, runbook: str = RUNBOOK) -> tuple[Alert, ...]:
    """Every rule that has something to watch. `runbook` is the address of the runbook."""
    rules = [_near_capacity(thresholds)]
    if watched.agent:
        rules += [
            _growth(thresholds),
            _out_of_memory(),
            _losses(),
            _no_profiles(),
            _not_ready("GpuheapAgentNotReady", watched.agent, 2),
        ]
    if watched.gadget:
        rules.append(_not_ready("InspektorGadgetNotReady", watched.gadget, 2))
    rules.append(_pyroscope(watched.pyroscope_namespace))
    return tuple(_complete(rule, runbook) for rule in rules)


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    expression: str
    for_minutes: int
    severity: Severity
    summary: str


def _complete(rule: _Rule, runbook: str) -> Alert:
    return Alert(
        name=rule.name,
        expression=re.sub(r"\s+", " ", rule.expression).strip(),
        for_minutes=rule.for_minutes,
        severity=rule.severity,
        summary=rule.summary,
        runbook=f"{runbook}#{rule.name.lower()}",
    )


def _near_capacity(thresholds: Thresholds) -> _Rule:
    """By DCGM where its exporter is scraped, which sees all that is taken; else by what the agent accounts for, which
    lacks the CUDA contexts, and the known size of the GPU.
    """
    ratios = [f"{DCGM_USED} / ({DCGM_USED} + {DCGM_FREE})"]
    by = "sum by (cluster, node, gpu)"
    for capacity in thresholds.capacities:
        nodes = f'gpu!="", node=~"{capacity.nodes}"'
        held = f'{by} ({contract.IN_USE_BYTES}{{{contract.KIND_LABEL}="{MemoryKind.DEVICE}", {nodes}}})'
        kept = f"{by} ({contract.POOL_RETAINED_BYTES}{{{nodes}}})"
        # A GPU without pools has no series of them, and `+` would drop it.
        ratios.append(f"({held} + ({kept} or 0 * {held})) / {capacity.gpu_bytes}")
    limit = thresholds.near_capacity_percent / 100
    return _Rule(
        "GpuMemoryNearCapacity",
        " or ".join(f"({ratio} > {limit:g})" for ratio in ratios),
        10,
        2,
        "A GPU of {{ $labels.node }}{{ $labels.Hostname }} is {{ $value | humanizePercentage }} full.",
    )


def _growth(thresholds: Thresholds) -> _Rule:
    """The least that was in use rises from each half hour to the next, four times: a sawtooth that comes back to the
    same floor is no growth, and neither is what has stopped to rise.
    """
    series = f'{contract.IN_USE_BYTES}{{{contract.KIND_LABEL}="{MemoryKind.DEVICE}"}}'
    floors = [
        f"min_over_time({series}[30m]{offset})" for offset in ("", " offset 30m", " offset 1h", " offset 90m")
    ]
    rises = " and ".join(f"{later} > {earlier}" for later, earlier in pairwise(floors))
    return _Rule(
        "GpuMemoryGrowsWithoutPlateau",
        f"({floors[0]} - {floors[-1]} > {thresholds.growth_bytes}) and {rises}",
        30,
        3,
        "{{ $labels.process }} ({{ $labels.pid }}) on {{ $labels.node }} kept {{ $value | humanize1024 }}B more GPU "
        "memory in two hours, and never stopped.",
    )


def _out_of_memory() -> _Rule:
    return _Rule(
        "GpuOutOfMemory",
        _rises(contract.FAILURES, f'code="{OUT_OF_MEMORY_CODE}"', "cluster, node, process", minutes=5),
        0,
        2,
        "{{ $labels.process }} on {{ $labels.node }} was refused GPU memory.",
    )


def _losses() -> _Rule:
    return _Rule(
        "GpuheapLosesEvents",
        _rises(contract.LOST_EVENTS, "", "cluster, node, reason", minutes=15),
        15,
        3,
        "The agent on {{ $labels.node }} loses or blurs events: {{ $labels.reason }}.",
    )


def _no_profiles() -> _Rule:
    """Held memory that reaches Pyroscope in no profile. Silent where nothing is held: there is nothing to push."""
    stored = f'{contract.PUSHED_PROFILES}{{outcome="stored"}}'
    return _Rule(
        "GpuheapPushesNoProfiles",
        f"sum by (cluster, node) ({contract.IN_USE_BYTES}) > 0 "
        f"unless on (cluster, node) (sum by (cluster, node) (increase({stored}[10m])) > 0)",
        10,
        2,
        "Processes on {{ $labels.node }} hold GPU memory, and no profile of it has been stored for ten minutes.",
    )


def _not_ready(name: str, daemon_set: str, severity: Severity) -> _Rule:
    namespace, _, called = daemon_set.partition("/")
    selected = f'{{namespace="{namespace}", daemonset="{called}"}}'
    ready, desired = (
        f"kube_daemonset_status_number_ready{selected}",
        f"kube_daemonset_status_desired_number_scheduled{selected}",
    )
    # absent: the DaemonSet itself is gone, which no comparison of its numbers can show.
    return _Rule(
        name,
        f"sum by (cluster, namespace, daemonset) ({ready}) < sum by (cluster, namespace, daemonset) ({desired}) "
        f"or absent({desired})",
        15,
        severity,
        "DaemonSet {{ $labels.namespace }}/{{ $labels.daemonset }} does not run on all of its nodes.",
    )


def _pyroscope(namespace: str) -> _Rule:
    selected = f'{{namespace="{namespace}", statefulset=~"pyroscope.*"}}'
    deployed = f'{{namespace="{namespace}", deployment=~"pyroscope.*"}}'
    by = "sum by (cluster, namespace, statefulset)"
    per = "sum by (cluster, namespace, deployment)"
    return _Rule(
        "PyroscopeNotReady",
        f"{by} (kube_statefulset_status_replicas_ready{selected}) < {by} (kube_statefulset_status_replicas{selected}) "
        f"or {per} (kube_deployment_status_replicas_available{deployed}) "
        f"< {per} (kube_deployment_spec_replicas{deployed}) "
        f"or absent(kube_statefulset_status_replicas{selected})",
        10,
        1,
        "Pyroscope's {{ $labels.statefulset }}{{ $labels.deployment }} in {{ $labels.namespace }} lacks replicas: "
        "profiles are refused, or dashboards stay empty.",
    )


def _rises(metric: str, selector: str, by: str, *, minutes: int) -> str:
    """Counts of `metric` that rose. Its first value counts as a rise: a series that begins at 1 had no 0 before it."""
    series = f"{metric}{{{selector}}}"
    return (
        f"sum by ({by}) (increase({series}[{minutes}m])) > 0 "
        f"or sum by ({by}) ({series} unless {series} offset {minutes}m) > 0"
    )


def rule_file(rules: Sequence[Alert]) -> Mapping[str, object]:
    """The rules in Prometheus' own form."""
    return {
        "groups": [
            {
                "name": "gpuheap",
                "rules": [
                    {
                        "alert": rule.name,
                        "expr": rule.expression,
                        "for": f"{rule.for_minutes}m",
                        "labels": {"severity": str(rule.severity)},
                        "annotations": {"summary": rule.summary, "runbook": rule.runbook},
                    }
                    for rule in rules
                ],
            }
        ]
    }
