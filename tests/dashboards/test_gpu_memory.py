# SPDX-License-Identifier: Apache-2.0
"""The committed dashboard is the generated one, and asks only for what the agent offers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dashboards import gpu_memory
from dashboards.__main__ import GENERATED, render
from gpuheap import contract

FOLDER = Path(gpu_memory.__file__).parent
METRICS = {
    value for name, value in vars(contract).items() if isinstance(value, str) and value.startswith("gpuheap_")
}
GADGET_METRICS = {"mem_alloc_bytes_total", "mem_free_bytes_total", "mem_implicit_free_bytes_total"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "gpu_memory.json").read_text())
    return read


@pytest.fixture(scope="module")
def targets(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [target for panel in dashboard["panels"] for target in panel.get("targets") or ()]


@pytest.mark.parametrize("name", GENERATED)
def test_the_committed_file_is_what_the_source_says(name: str) -> None:
    assert (FOLDER / name).read_text() == render(name), "run `python -m dashboards`"


def test_every_metric_asked_for_is_one_that_is_served(targets: list[dict[str, Any]]) -> None:
    queries = " ".join(target["expr"] for target in targets if "expr" in target)
    asked = set(re.findall(r"\b(?:gpuheap|mem)_[a-z_]+", queries))
    assert asked <= METRICS | GADGET_METRICS
    assert asked >= METRICS - {contract.IN_USE_OBJECTS, contract.ALLOCATED_OBJECTS}, (
        "a metric that nobody sees"
    )


def test_every_label_of_a_process_is_one_that_the_agent_sets(targets: list[dict[str, Any]]) -> None:
    for target in targets:
        expression = target.get("expr", "")
        if contract.IN_USE_BYTES not in expression:
            continue
        grouped = set(re.findall(r"by \(([^)]*)\)", expression)[0].split(", "))
        assert grouped <= set(contract.PROCESS_LABELS)


def test_no_query_adds_up_memory_of_several_kinds(targets: list[dict[str, Any]]) -> None:
    found = [
        (grouped, selected)
        for target in targets
        for grouped, selected in re.findall(
            r"sum by \(([^)]*)\) \((?:rate\(|increase\()?gpuheap_memory_\w+(\{[^}]*\})",
            target.get("expr", ""),
        )
    ]
    assert len(found) == " ".join(target.get("expr", "") for target in targets).count("gpuheap_memory_")
    for grouped, selected in found:
        assert "kind" in grouped.split(", ") or 'kind="$kind"' in selected, (grouped, selected)


def test_a_flame_graph_of_ours_is_of_one_kind(targets: list[dict[str, Any]]) -> None:
    selectors = [
        target["labelSelector"]
        for target in targets
        if target.get("profileTypeId", "").startswith("gpu_memory:")
    ]
    assert len(selectors) == 2
    assert all('kind="$kind"' in selector for selector in selectors)


def test_the_kind_is_one_of_the_agents_and_device_memory_at_first(dashboard: dict[str, Any]) -> None:
    (kind,) = (variable for variable in dashboard["templating"]["list"] if variable["name"] == "kind")
    assert kind["current"]["value"] == "device"
    assert not kind["multi"] and not kind["includeAll"], "several values would be added up"
    assert kind["query"] == "device,managed,pinned_host,array,graph,imported"


def test_curves_of_memory_tell_devices_or_kinds_apart(targets: list[dict[str, Any]]) -> None:
    for target in targets:
        if re.search(r"gpuheap_(memory|pool)_", target.get("expr", "")) and target.get("legendFormat"):
            assert re.search(r"\{\{(device|kind)\}\}", target["legendFormat"]), target["expr"]


def test_the_flame_graph_of_now_looks_at_one_push(dashboard: dict[str, Any]) -> None:
    (panel,) = (panel for panel in dashboard["panels"] if panel.get("title") == "In use now, by line")
    assert panel["type"] == "flamegraph"
    assert panel["timeFrom"] == f"{contract.DEFAULT_PUSH_INTERVAL_SECONDS}s", (
        "a longer window would sum pushes"
    )
    assert panel["timeShift"] == "5s"
    assert panel["targets"][0]["profileTypeId"] == "gpu_memory:inuse_space:bytes:space:bytes"


def test_the_reader_is_told_that_pushes_are_summed(dashboard: dict[str, Any]) -> None:
    (note,) = (panel for panel in dashboard["panels"] if panel["type"] == "text")
    assert "adds up" in note["options"]["content"]


def test_every_query_goes_to_a_data_source_that_can_be_chosen(
    dashboard: dict[str, Any], targets: list[dict[str, Any]]
) -> None:
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert {"prom_ds", "pyroscope_ds", "cluster", "node", "process", "kind"} <= variables
    assert {target["datasource"]["uid"] for target in targets} == {"${prom_ds}", "${pyroscope_ds}"}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(dashboard["panels"])))
    assert used - {"__rate_interval"} <= variables


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells.isdisjoint(covered), panel["title"]
        cells |= covered
