# SPDX-License-Identifier: Apache-2.0
"""The benchmark's arithmetic, its file, and that a tiny run measures something. Never how long anything takes."""

import inspect
import json
import sys
from pathlib import Path

import pytest

from bench import agent_cost, native_calls
from bench.build import EMPTY, PLAIN, TRACED, Built, build
from bench.calls import DEPTH, Effort, measured
from bench.figures import BadMeasurement, document, median, ratio, single
from bench.probes import empty_probes, tracing
from bench.programs import Run, between
from bench.report import machine, number, write
from bench.snapshots import snapshots
from bench.worker import chain, frames_here


def test_a_ratio_is_that_of_the_medians() -> None:
    assert ratio("alloc", [300.0, 900.0, 600.0], [100.0, 200.0, 300.0]).value == 3.0


def test_a_ratio_is_spread_as_the_ratios_of_neighbouring_samples() -> None:
    # 2, 3, 4, 5, 6: a disturbance that doubles a sample and its neighbour does not show
    figure = ratio("alloc", [2.0, 3.0, 8.0, 5.0, 6.0], [1.0, 1.0, 2.0, 1.0, 1.0])
    assert (figure.low, figure.high) == (3.0, 5.0)


def test_a_median_has_its_quartiles_around_it() -> None:
    figure = median("start", [5.0, 1.0, 3.0, 2.0, 4.0], "ms")
    assert (figure.low, figure.value, figure.high) == (2.0, 3.0, 4.0)


def test_one_sample_is_a_median_without_spread() -> None:
    figure = median("start", [7.0], "ms")
    assert (figure.low, figure.value, figure.high) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("samples", "floor", "reason"),
    [
        ([], [], "nothing was measured"),
        ([1.0, 2.0], [1.0], "2 samples over 1"),
        ([1.0], [0.0], "above zero"),
        ([1.0], [-1.0], "above zero"),
    ],
)
def test_a_ratio_of_what_does_not_belong_together_is_refused(
    samples: list[float], floor: list[float], reason: str
) -> None:
    with pytest.raises(BadMeasurement, match=reason):
        ratio("alloc", samples, floor)


def test_a_median_of_nothing_is_refused() -> None:
    with pytest.raises(BadMeasurement, match="start: nothing was measured"):
        median("start", [], "ms")


def test_the_file_holds_the_machine_and_each_figure_with_name_value_and_unit(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    write(path, machine(["bpftrace skipped"]), [single("agent_rss_mib_1k", 40.123456, "MiB")])
    content = json.loads(path.read_text())
    assert set(content) == {"machine", "results"}
    assert content["machine"]["notes"] == ["bpftrace skipped"]
    assert content["results"] == [
        {"name": "agent_rss_mib_1k", "value": 40.1235, "unit": "MiB", "quartiles": [40.1235, 40.1235]}
    ]


def test_two_figures_of_one_name_are_refused() -> None:
    with pytest.raises(BadMeasurement, match="more than one figure named a"):
        document({}, [single("a", 1, "ns"), single("a", 2, "ns")])


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (2.146, "2.15"), (18.24, "18.2"), (11856.3, "11,856")]
)
def test_a_number_is_shown_with_the_digits_that_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_a_chain_has_as_many_functions_as_asked_for() -> None:
    def depth() -> int:
        return len(inspect.stack(0))

    assert chain(5, depth)(1) == frames_here() + 5 + 1


def test_what_ran_in_the_meantime_is_the_difference_and_the_dearest_comes_first() -> None:
    before = {1: Run(name="entry", runs=10, ns=100), 2: Run(name="leave", runs=10, ns=100)}
    after = {
        1: Run(name="entry", runs=12, ns=120),
        2: Run(name="leave", runs=10, ns=100),
        3: Run(name="new", runs=1, ns=500),
    }
    assert between(before, after) == [Run(name="new", runs=1, ns=500), Run(name="entry", runs=2, ns=20)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("bench"))


@pytest.mark.bpf
def test_a_tiny_run_measures_a_driver_without_probes_with_empty_ones_and_with_the_tracers(
    built: Built,
) -> None:
    drivers = [PLAIN, EMPTY, TRACED]
    with empty_probes(built), tracing(built) as tracer:
        cost = measured(built, Path(sys.executable), tracer, drivers, DEPTH, Effort(rounds=2, count=20))
    assert {name: len(one.allocate_ns) for name, one in cost.items()} == {PLAIN: 2, EMPTY: 2, TRACED: 2}
    assert min(ns for one in cost.values() for ns in one.allocate_ns + one.free_ns) > 0


@pytest.mark.bpf
def test_a_tiny_run_measures_native_stacks_of_a_given_depth(built: Built) -> None:
    effort = Effort(rounds=2, count=20)
    with empty_probes(built), tracing(built, native_stacks=True) as tracer:
        cost = native_calls.measured(built, Path(sys.executable), tracer, DEPTH, 50, effort)
    assert {name: len(one.allocate_ns) for name, one in cost.items()} == {EMPTY: 2, TRACED: 2}


@pytest.mark.bpf
def test_a_tiny_run_finds_119_native_stacks(built: Built) -> None:
    figures = {figure.name: figure.value for figure in snapshots(built, Path(sys.executable), 0.1)}
    assert (figures["snapshots_stacks_made"], figures["snapshots_stacks_found"]) == (119, 119)


@pytest.mark.bpf
def test_the_agents_cost_is_that_of_an_agent_that_sees_the_allocations(built: Built) -> None:
    effort = agent_cost.Effort(rates={"few": 20}, interval=1, samples=1, settle_seconds=1)
    found = agent_cost.agent_cost(built, Path(sys.executable), effort)
    figures = {figure.name: figure.value for figure in found}
    assert {"agent_cpu_percent_few", "agent_rss_mib_few"} <= figures.keys()
    assert figures["agent_rss_mib_few"] > figures["agent_own_mib_few"] > 1
