# SPDX-License-Identifier: Apache-2.0
"""Each alert fires for what it is about, stays silent beside it, and resolves: as Prometheus' own engine evaluates it.

Series are written by hand, one value a minute.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from alerts.rules import Capacity, Thresholds, Watched, alerts
from gpuheap import contract
from tests.alerts.engine import Firing, firing

pytestmark = pytest.mark.rules

GIB: Final = 1 << 30
A100: Final = 80 * GIB
RULES: Final = alerts(
    Thresholds(capacities=[Capacity(nodes="aks-gpu-.*", gpu_bytes=A100)]),
    Watched(agent="gpuheap/gpuheap-agent", gadget="gadget/gadget", pyroscope_namespace="gadget"),
)
NODE: Final = 'cluster="c",node="aks-gpu-1"'
PROCESS: Final = f'{NODE},process="python",pid="7",kind="device",device="0",gpu="GPU-1"'

Fires = Callable[[str, Mapping[str, str], str], list[Firing]]


@pytest.fixture
def fires(tmp_path: Path) -> Fires:
    """What one rule fires over some series, at a time from the start."""

    def ask(name: str, series: Mapping[str, str], at: str) -> list[Firing]:
        (rule,) = (rule for rule in RULES if rule.name == name)
        return firing([rule], series, at, interval="1m", folder=tmp_path)

    return ask


def _in_use(values: str, labels: str = PROCESS) -> dict[str, str]:
    return {f"{contract.IN_USE_BYTES}{{{labels}}}": values}


# --- memory near capacity -----------------------------------------------------------------------------------------


def test_a_gpu_that_stays_nine_tenths_full_is_near_capacity(fires: Fires) -> None:
    (alert,) = fires("GpuMemoryNearCapacity", _in_use(f"{76 * GIB}x20"), "15m")
    assert alert.labels == {"cluster": "c", "node": "aks-gpu-1", "gpu": "GPU-1"}
    assert alert.value == pytest.approx(0.95)
    assert alert.annotations["summary"] == "A GPU of aks-gpu-1 is 95% full."


def test_processes_and_pools_of_one_gpu_are_taken_together(fires: Fires) -> None:
    series = {
        **_in_use(f"{40 * GIB}x20"),
        **_in_use(f"{30 * GIB}x20", PROCESS.replace('pid="7"', 'pid="8"')),
        f'{contract.POOL_RETAINED_BYTES}{{{NODE},process="python",pid="7",device="0",gpu="GPU-1"}}': f"{4 * GIB}x20",
    }
    (alert,) = fires("GpuMemoryNearCapacity", series, "15m")
    assert alert.value == pytest.approx(74 / 80)


@pytest.mark.parametrize(
    "series",
    [
        pytest.param(_in_use(f"{70 * GIB}x20"), id="below the threshold"),
        pytest.param(
            _in_use(f"{76 * GIB}x20", PROCESS.replace("device", "pinned_host", 1)), id="host memory"
        ),
        pytest.param(_in_use(f"{76 * GIB}x20", PROCESS.replace("GPU-1", "")), id="no one knows which GPU"),
        pytest.param(
            _in_use(f"{76 * GIB}x20", PROCESS.replace("aks-gpu", "aks-big")), id="a pool of unknown size"
        ),
        pytest.param(
            {
                **_in_use(f"{70 * GIB}x20"),
                **_in_use(f"{70 * GIB}x20", PROCESS.replace("GPU-1", "GPU-2")),
            },
            id="two GPUs that are both below",
        ),
    ],
)
def test_what_is_not_near_capacity(fires: Fires, series: Mapping[str, str]) -> None:
    assert fires("GpuMemoryNearCapacity", series, "15m") == []


def test_a_short_peak_is_not_near_capacity(fires: Fires) -> None:
    assert fires("GpuMemoryNearCapacity", _in_use(f"{76 * GIB}x5 {10 * GIB}x10 {76 * GIB}x5"), "20m") == []


def test_a_gpu_that_empties_is_no_longer_near_capacity(fires: Fires) -> None:
    series = _in_use(f"{76 * GIB}x15 {10 * GIB}x10")
    assert fires("GpuMemoryNearCapacity", series, "15m")
    assert fires("GpuMemoryNearCapacity", series, "17m") == []


def test_the_gpus_own_exporter_is_believed_where_it_is_scraped(fires: Fires) -> None:
    labels = 'cluster="c",Hostname="aks-gpu-1",gpu="0"'
    series = {f"DCGM_FI_DEV_FB_USED{{{labels}}}": "78000x20", f"DCGM_FI_DEV_FB_FREE{{{labels}}}": "2000x20"}
    (alert,) = fires("GpuMemoryNearCapacity", series, "15m")
    assert alert.value == pytest.approx(0.975)
    assert alert.annotations["summary"] == "A GPU of aks-gpu-1 is 97.5% full."


# --- growth without plateau ---------------------------------------------------------------------------------------


def test_memory_that_grows_by_the_hour_grows_without_plateau(fires: Fires) -> None:
    (alert,) = fires("GpuMemoryGrowsWithoutPlateau", _in_use(f"{GIB}+{16 << 20}x200"), "180m")
    assert alert.labels["process"] == "python"
    # Floors 90 minutes apart, at 16 MiB a minute.
    assert alert.value == 90 * (16 << 20)
    assert "kept 1.406GiB more" in alert.annotations["summary"]


def test_a_sawtooth_whose_floor_rises_grows_too(fires: Fires) -> None:
    teeth = " ".join(f"{GIB + tooth * (80 << 20)}+{100 << 20}x9" for tooth in range(20))
    assert fires("GpuMemoryGrowsWithoutPlateau", _in_use(teeth), "180m")


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(" ".join(f"{GIB}+{100 << 20}x9" for _ in range(20)), id="a sawtooth with a level floor"),
        pytest.param(f"{GIB}+{100 << 20}x40 {5 * GIB}x160", id="a start that ends on a plateau"),
        pytest.param(f"{GIB}+{1 << 20}x200", id="a crawl below the threshold"),
        pytest.param(f"{8 * GIB}-{16 << 20}x200", id="memory that is given back"),
        pytest.param(f"{GIB}+{16 << 20}x100", id="a process that lives too short to tell"),
    ],
)
def test_what_is_no_growth(fires: Fires, values: str) -> None:
    assert fires("GpuMemoryGrowsWithoutPlateau", _in_use(values), "180m") == []


def test_growth_ends_with_the_plateau(fires: Fires) -> None:
    series = _in_use(f"{GIB}+{16 << 20}x180 {4 * GIB}x70")
    assert fires("GpuMemoryGrowsWithoutPlateau", series, "180m")
    assert fires("GpuMemoryGrowsWithoutPlateau", series, "250m") == []


# --- out of memory ------------------------------------------------------------------------------------------------


def _failures(values: str, code: int = 2) -> dict[str, str]:
    return {f'{contract.FAILURES}{{{NODE},process="python",pid="7",code="{code}"}}': values}


def test_the_first_refusal_of_a_process_is_told_at_once(fires: Fires) -> None:
    (alert,) = fires("GpuOutOfMemory", _failures("_x4 1x10"), "5m")
    assert alert.labels == {"cluster": "c", "node": "aks-gpu-1", "process": "python"}
    assert alert.annotations["summary"] == "python on aks-gpu-1 was refused GPU memory."


def test_a_refusal_after_others_is_told(fires: Fires) -> None:
    assert fires("GpuOutOfMemory", _failures("3x30 4x10"), "32m")


@pytest.mark.parametrize(
    ("series", "at"),
    [
        pytest.param(_failures("1x60", code=1), "2m", id="another error"),
        pytest.param(_failures("3x60"), "50m", id="refusals of long ago"),
    ],
)
def test_what_is_no_refusal(fires: Fires, series: Mapping[str, str], at: str) -> None:
    assert fires("GpuOutOfMemory", series, at) == []


def test_a_refusal_is_over_when_no_other_follows(fires: Fires) -> None:
    series = _failures("0x10 1x30")
    assert fires("GpuOutOfMemory", series, "12m")
    assert fires("GpuOutOfMemory", series, "20m") == []


# --- the agent loses events -----------------------------------------------------------------------------------------


def _lost(values: str, reason: str = "ring_full") -> dict[str, str]:
    return {f'{contract.LOST_EVENTS}{{{NODE},reason="{reason}"}}': values}


def test_losses_that_go_on_are_told_with_their_reason(fires: Fires) -> None:
    (alert,) = fires("GpuheapLosesEvents", {**_lost("0+5x60"), **_lost("0x60", "fault")}, "40m")
    assert alert.labels == {"cluster": "c", "node": "aks-gpu-1", "reason": "ring_full"}


def test_an_agent_without_losses_is_silent(fires: Fires) -> None:
    assert fires("GpuheapLosesEvents", _lost("0x60"), "40m") == []


def test_losses_are_over_when_the_count_stands_still(fires: Fires) -> None:
    series = _lost("0+5x40 200x40")
    assert fires("GpuheapLosesEvents", series, "40m")
    assert fires("GpuheapLosesEvents", series, "60m") == []


def test_an_agent_that_starts_anew_has_lost_nothing(fires: Fires) -> None:
    assert fires("GpuheapLosesEvents", _lost("200x30 0x30"), "50m") == []


# --- no profiles arrive ---------------------------------------------------------------------------------------------


def _pushed(values: str, outcome: str = "stored") -> dict[str, str]:
    return {f'{contract.PUSHED_PROFILES}{{{NODE},outcome="{outcome}"}}': values}


def test_held_memory_without_stored_profiles_is_told(fires: Fires) -> None:
    series = {**_in_use(f"{GIB}x60"), **_pushed("12x60"), **_pushed("0+4x60", "failed")}
    (alert,) = fires("GpuheapPushesNoProfiles", series, "40m")
    assert alert.labels == {"cluster": "c", "node": "aks-gpu-1"}


def test_an_agent_that_never_stored_a_profile_is_told(fires: Fires) -> None:
    assert fires("GpuheapPushesNoProfiles", _in_use(f"{GIB}x60"), "15m")


@pytest.mark.parametrize(
    "series",
    [
        pytest.param({**_in_use(f"{GIB}x60"), **_pushed("0+4x60")}, id="profiles are stored"),
        pytest.param({**_in_use("0x60"), **_pushed("12x60")}, id="nothing is held"),
        pytest.param(_pushed("12x60"), id="no process"),
    ],
)
def test_when_no_profile_is_missed(fires: Fires, series: Mapping[str, str]) -> None:
    assert fires("GpuheapPushesNoProfiles", series, "40m") == []


def test_another_nodes_profiles_are_no_excuse(fires: Fires) -> None:
    other = {name.replace("aks-gpu-1", "aks-gpu-2"): values for name, values in _pushed("0+4x60").items()}
    assert fires("GpuheapPushesNoProfiles", {**_in_use(f"{GIB}x60"), **other}, "40m")


def test_no_profile_is_missed_once_one_is_stored(fires: Fires) -> None:
    series = {**_in_use(f"{GIB}x60"), **_pushed("12x30 13+4x30")}
    assert fires("GpuheapPushesNoProfiles", series, "30m")
    assert fires("GpuheapPushesNoProfiles", series, "33m") == []


# --- what must run --------------------------------------------------------------------------------------------------

DAEMON_SETS: Final = [
    ("GpuheapAgentNotReady", "gpuheap", "gpuheap-agent"),
    ("InspektorGadgetNotReady", "gadget", "gadget"),
]


def _daemon_set(namespace: str, name: str, ready: str, desired: str) -> dict[str, str]:
    labels = f'cluster="c",namespace="{namespace}",daemonset="{name}"'
    return {
        f"kube_daemonset_status_number_ready{{{labels}}}": ready,
        f"kube_daemonset_status_desired_number_scheduled{{{labels}}}": desired,
    }


@pytest.mark.parametrize(("alert", "namespace", "name"), DAEMON_SETS)
def test_a_profiler_that_is_not_on_all_nodes_is_told_until_it_is(
    fires: Fires, alert: str, namespace: str, name: str
) -> None:
    series = _daemon_set(namespace, name, "2x30 3x30", "3x60")
    (found,) = fires(alert, series, "20m")
    assert (found.labels["namespace"], found.labels["daemonset"]) == (namespace, name)
    assert fires(alert, series, "35m") == []


@pytest.mark.parametrize(("alert", "namespace", "name"), DAEMON_SETS)
def test_a_profiler_that_is_gone_altogether_is_told(
    fires: Fires, alert: str, namespace: str, name: str
) -> None:
    (found,) = fires(alert, _daemon_set(namespace, name, "3x10", "3x10"), "40m")
    assert (found.labels["namespace"], found.labels["daemonset"]) == (namespace, name)


@pytest.mark.parametrize(("alert", "namespace", "name"), DAEMON_SETS)
@pytest.mark.parametrize("count", ["0", "3"])
def test_a_profiler_on_all_of_its_nodes_is_silent(
    fires: Fires, alert: str, namespace: str, name: str, count: str
) -> None:
    assert fires(alert, _daemon_set(namespace, name, f"{count}x60", f"{count}x60"), "40m") == []


def _stateful_set(ready: str, wanted: str = "1x60", name: str = "pyroscope") -> dict[str, str]:
    labels = f'cluster="c",namespace="gadget",statefulset="{name}"'
    return {
        f"kube_statefulset_status_replicas_ready{{{labels}}}": ready,
        f"kube_statefulset_status_replicas{{{labels}}}": wanted,
    }


def test_pyroscope_without_its_replica_is_told_until_it_is_back(fires: Fires) -> None:
    series = _stateful_set("0x30 1x30")
    (found,) = fires("PyroscopeNotReady", series, "20m")
    assert found.labels["statefulset"] == "pyroscope"
    assert fires("PyroscopeNotReady", series, "32m") == []


def test_a_part_of_pyroscope_without_a_replica_is_told(fires: Fires) -> None:
    labels = 'cluster="c",namespace="gadget",deployment="pyroscope-querier"'
    series = {
        **_stateful_set("3x60", "3x60", "pyroscope-ingester"),
        f"kube_deployment_status_replicas_available{{{labels}}}": "1x60",
        f"kube_deployment_spec_replicas{{{labels}}}": "2x60",
    }
    (found,) = fires("PyroscopeNotReady", series, "20m")
    assert found.labels["deployment"] == "pyroscope-querier"


def test_pyroscope_that_is_gone_is_told(fires: Fires) -> None:
    assert fires("PyroscopeNotReady", {"up{}": "1x60"}, "20m")


def test_a_running_pyroscope_and_other_programs_are_silent(fires: Fires) -> None:
    other = {
        name.replace('namespace="gadget"', 'namespace="web"'): values
        for name, values in _stateful_set("0x60").items()
    }
    assert fires("PyroscopeNotReady", {**_stateful_set("1x60"), **other}, "40m") == []
