# SPDX-License-Identifier: Apache-2.0
"""Each check against a cloud that is as it should be, and against one that differs in the one thing it looks at.

The stand-ins answer with the shapes of the real APIs. The whole on a local cloud is in tests/engine.
"""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node, Pod, Service
from rich.console import Console

from components.device_plugins import DevicePlugin, Nodes, Strategy
from components.gpu_vendors import AMD, NVIDIA, GpuVendor
from verify.checks import CHECKS, run
from verify.model import Check, CheckFailed, Live, NothingToCheck, Outcome
from verify.table import print_table, to_json

NOW = time.time() * 1000
CONTAINERS = {"containers": [{"name": "main"}]}
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}


def _plugin(name: str, node: str, called: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"name": called}},
        "spec": {**CONTAINERS, "nodeName": node},
        "status": READY,
    }


OUTPUTS = {
    "inspektorGadgetExtensionId": "/extension",
    "privateLinkServiceId": "/pls",
    "managedPrivateEndpointId": "/mpe",
    "grafanaPrivateEndpointId": "/pe",
    "pyroscopeDataSourceUid": "local-pyroscope",
    "pyroscopeUrl": "http://pyroscope.example:4040",
    "prometheusDataSourceUid": "prometheus",
    "dashboardUrl": "https://grafana.example/d/gpu-memory",
    "agentDaemonSet": "gpuheap/gpuheap-agent",
    "alertRuleGroupId": "/rules",
    "profilers": ["inspektor-gadget", "gpuheap"],
}
CLOUD: dict[str, dict[str, Any]] = {
    "arm": {
        "/extension": {
            "properties": {
                "provisioningState": "Succeeded",
                "configurationSettings": {"gpuObservability.enabled": "true"},
            }
        },
        "/rules": {
            "name": "gpuheap",
            "properties": {"enabled": True, "rules": [{"alert": "GpuOutOfMemory", "enabled": True}]},
        },
        "/pe": {
            "name": "grafana",
            "properties": {
                "privateLinkServiceConnections": [
                    {
                        "name": "grafana",
                        "properties": {"privateLinkServiceConnectionState": {"status": "Approved"}},
                    }
                ]
            },
        },
        "/pls": {"name": "pls", "properties": {"provisioningState": "Succeeded"}},
        "/mpe": {
            "properties": {
                "connectionState": {"status": "Approved"},
                "privateLinkServicePrivateIP": "10.1.2.3",
            }
        },
    },
    "grafana": {
        "datasources/uid/local-pyroscope": {
            "name": "local-pyroscope",
            "type": "grafana-pyroscope-datasource",
            "url": "http://pyroscope.example:4040",
        },
        "datasources/uid/prometheus": {
            "name": "prometheus",
            "url": "https://metrics.example",
            "jsonData": {"azureCredentials": {"authType": "msi"}},
        },
        "datasources/uid/local-pyroscope/health": {"status": "OK", "message": "Data source is working"},
        "datasources/uid/prometheus/health": {"status": "OK", "message": "Data source is working"},
        "dashboards/uid/gpu-memory": {"dashboard": {"title": "GPU memory"}},
        "https://grafana.example/d/gpu-memory": {},
        # What is asked of a data source: its type of query, and the columns of the answer.
        "grafana-pyroscope-datasource": [[NOW], [1]],
        "prometheus": [[NOW], [1 << 30]],
    },
    "nodes": {
        "gpu-0": {
            "metadata": {"name": "gpu-0", "labels": {"kubernetes.azure.com/agentpool": "gpu"}},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/gpu": "1"}},
        },
        "amd-0": {
            "metadata": {"name": "amd-0", "labels": {"agentpool": "amd"}},
            "spec": {"taints": [{"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"amd.com/gpu": "8", "cpu": "96"}},
        },
        "system-0": {"metadata": {"name": "system-0"}, "spec": {}, "status": {"allocatable": {"cpu": "4"}}},
    },
    "commands": {
        "nvidia-x": "580.65.06\n",
        "amd-x": "AMDSMI Tool: 25.3.0 | ROCm version: 6.4.0\n",
    },
    "pods": {
        "nvidia-x": _plugin("nvidia-x", "gpu-0", "nvidia-device-plugin-ds"),
        "amd-x": _plugin("amd-x", "amd-0", "amdgpu-dp-ds"),
        "gadget-x": {
            "metadata": {"name": "gadget-x", "labels": {"k8s-app": "gadget"}},
            "spec": CONTAINERS,
            "status": READY,
        },
        "pyroscope-0": {
            "metadata": {"name": "pyroscope-0", "labels": {"app.kubernetes.io/name": "pyroscope"}},
            "spec": CONTAINERS,
            "status": READY,
        },
    },
    "services": {"pyroscope": {"spec": {"ports": [{"port": 4040}]}}},
    "daemonsets": {
        "gpuheap-agent": {
            "spec": {"selector": {}, "template": {"spec": CONTAINERS}},
            "status": {
                "currentNumberScheduled": 1,
                "desiredNumberScheduled": 1,
                "numberMisscheduled": 0,
                "numberReady": 1,
            },
        }
    },
}

BREAKAGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "GPU nodes are tainted and offer their GPUs": (
        lambda cloud: cloud["nodes"]["gpu-0"]["status"]["allocatable"].clear(),
        "node gpu-0 of pool gpu has no allocatable nvidia.com/gpu",
    ),
    "Device plugin runs on every GPU node": (
        lambda cloud: cloud["pods"]["amd-x"].update(status={"phase": "Pending"}),
        "pod amd-x on node amd-0 is not ready: Pending",
    ),
    "GPU driver answers in every pool": (
        lambda cloud: cloud["commands"].pop("amd-x"),
        "amd-smi in pod amd-x ended with 9",
    ),
    "A private endpoint leads to Grafana": (
        lambda cloud: cloud["arm"]["/pe"]["properties"]["privateLinkServiceConnections"][0][
            "properties"
        ].update(privateLinkServiceConnectionState={"status": "Disconnected"}),
        "its connections are: Disconnected",
    ),
    "Grafana reaches Pyroscope": (
        lambda cloud: cloud["grafana"]["datasources/uid/local-pyroscope/health"].update(
            status="ERROR", message="connection refused"
        ),
        "Grafana says: connection refused",
    ),
    "Grafana may read the metrics": (
        lambda cloud: cloud["grafana"].pop("datasources/uid/prometheus/health"),
        "404",
    ),
    "Dashboard's address answers": (
        lambda cloud: cloud["grafana"].pop("https://grafana.example/d/gpu-memory"),
        "404",
    ),
    "A profile is newer than a minute": (
        lambda cloud: cloud["grafana"].update({"grafana-pyroscope-datasource": [[], []]}),
        "no profile of type gpu_memory:inuse_space:bytes:space:bytes in the last 60 s",
    ),
    "Alert rules are on": (
        lambda cloud: cloud["arm"]["/rules"]["properties"]["rules"][0].update(enabled=False),
        "disabled: GpuOutOfMemory",
    ),
    "Inspektor Gadget extension is installed": (
        lambda cloud: cloud["arm"]["/extension"]["properties"].update(provisioningState="Failed"),
        "provisioningState is Failed",
    ),
    "Inspektor Gadget pods run": (
        lambda cloud: cloud["pods"].pop("gadget-x"),
        "no pod in gadget has k8s-app=gadget",
    ),
    "Pyroscope runs": (
        lambda cloud: cloud["pods"]["pyroscope-0"].update(status={"phase": "Pending"}),
        "pod pyroscope-0 is Pending",
    ),
    "Pyroscope answers to its name in the cluster": (
        lambda cloud: cloud["services"]["pyroscope"]["spec"]["ports"][0].update(port=80),
        "ports [80], not 4040",
    ),
    "Private Link Service exists": (lambda cloud: cloud["arm"].pop("/pls"), "404"),
    "Grafana's private endpoint is approved": (
        lambda cloud: cloud["arm"]["/mpe"]["properties"]["connectionState"].update(status="Pending"),
        "the connection is Pending",
    ),
    "Pyroscope data source has the endpoint's URL": (
        lambda cloud: cloud["grafana"]["datasources/uid/local-pyroscope"].update(url="http://:4040"),
        "its URL is http://:4040, not http://pyroscope.example:4040",
    ),
    "Prometheus data source uses the managed identity": (
        lambda cloud: cloud["grafana"]["datasources/uid/prometheus"].update(jsonData={}),
        "does not authenticate with the managed identity",
    ),
    "Dashboard is there": (lambda cloud: cloud["grafana"].pop("dashboards/uid/gpu-memory"), "404"),
    "Agent runs on every GPU node": (
        lambda cloud: cloud["daemonsets"]["gpuheap-agent"]["status"].update(desiredNumberScheduled=2),
        "1 of 2 pods are ready",
    ),
}


class _Http:
    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def get(self, path: str, api_version: str = "") -> Any:
        if path not in self._answers:
            raise CheckFailed(f"GET {path} answered 404")
        return self._answers[path]

    def query(self, body: Any) -> Any:
        (query,) = body["queries"]
        columns = self.get(query["datasource"]["type"])
        return {"results": {"A": {"status": 200, "frames": [{"data": {"values": columns}}]}}}

    def page(self, url: str) -> None:
        self.get(url)


class _Pods:
    """Runs nothing: what a command would print is known by its pod."""

    def __init__(self, printed: dict[str, str]) -> None:
        self._printed = printed

    def run(self, namespace: str, pod: str, container: str, command: Any) -> str:
        if pod not in self._printed:
            raise CheckFailed(f"{command[0]} in pod {pod} ended with 9")
        return self._printed[pod]


class _Kubernetes:
    def __init__(self, cloud: dict[str, Any]) -> None:
        self._objects = {
            Node: cloud["nodes"],
            Pod: cloud["pods"],
            Service: cloud["services"],
            DaemonSet: cloud["daemonsets"],
        }

    def list(self, kind: Any, namespace: str = "", labels: dict[str, str] | None = None) -> Any:
        for found in self._objects[kind].values():
            if (labels or {}).items() <= found["metadata"].get("labels", {}).items():
                yield kind.from_dict(found)

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return kind.from_dict(self._objects[kind][name])


def _live(cloud: dict[str, Any], outputs: dict[str, Any] | None = None) -> Live:
    kubernetes: Any = _Kubernetes(cloud)
    return Live(
        outputs=outputs or OUTPUTS,
        kubernetes=kubernetes,
        pods=_Pods(cloud["commands"]),
        arm=_Http(cloud["arm"]),
        grafana=_Http(cloud["grafana"]),
    )


def test_every_check_passes_on_a_cloud_that_is_as_it_should_be() -> None:
    failed = [
        (result.check.title, result.seen)
        for result in run(_live(CLOUD), CHECKS)
        if result.outcome is not Outcome.PASSED
    ]
    assert failed == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_a_check_fails_alone_when_its_one_thing_is_wrong(check: Check) -> None:
    cloud = copy.deepcopy(CLOUD)
    break_it, expected = BREAKAGES[check.title]
    break_it(cloud)
    failed = [result for result in run(_live(cloud), CHECKS) if result.outcome is not Outcome.PASSED]
    assert [result.check.title for result in failed] == [check.title]
    assert expected in failed[0].seen


def test_a_stack_without_outputs_fails_each_check_that_needs_one_and_says_so() -> None:
    results = run(_live(CLOUD, {"profilers": ["inspektor-gadget", "gpuheap"]}), CHECKS)
    assert any("no output 'privateLinkServiceId'" in result.seen for result in results)
    assert len(results) == len(CHECKS), "one failure must not hide the others"


def test_the_table_shows_the_remedy_of_a_failure_and_json_has_it_too() -> None:
    cloud = copy.deepcopy(CLOUD)
    cloud["arm"].pop("/pls")
    results = run(_live(cloud), CHECKS)
    console = Console(width=200)
    with console.capture() as shown:
        print_table(console, results)
    assert "kubectl describe the LoadBalancer Service" in shown.get()
    rows = json.loads(to_json(results))
    assert [row["remedy"] is None for row in rows] == [row["outcome"] == "passed" for row in rows]


def _outcomes(cloud: dict[str, Any], outputs: dict[str, Any] | None = None) -> dict[str, tuple[Outcome, str]]:
    return {
        result.check.title: (result.outcome, result.seen) for result in run(_live(cloud, outputs), CHECKS)
    }


def test_a_profiler_that_the_stack_is_without_is_not_looked_for() -> None:
    cloud = copy.deepcopy(CLOUD)
    del cloud["arm"]["/extension"], cloud["pods"]["gadget-x"]
    outcomes = _outcomes(cloud, {**OUTPUTS, "profilers": ["gpuheap"]})
    assert outcomes["Inspektor Gadget extension is installed"][0] is Outcome.SKIPPED
    assert outcomes["Inspektor Gadget pods run"][0] is Outcome.SKIPPED
    assert {outcome for outcome, _ in outcomes.values()} == {Outcome.PASSED, Outcome.SKIPPED}


def test_without_our_agent_the_gadgets_profiles_are_what_must_be_fresh() -> None:
    outcomes = _outcomes(CLOUD, {**OUTPUTS, "profilers": ["inspektor-gadget"]})
    assert outcomes["Agent runs on every GPU node"][0] is Outcome.SKIPPED
    assert outcomes["A profile is newer than a minute"][1].startswith("process_cpu:malloc:bytes::")


def test_where_nothing_is_held_no_profile_is_missed() -> None:
    cloud = copy.deepcopy(CLOUD)
    cloud["grafana"].update({"grafana-pyroscope-datasource": [[], []], "prometheus": [[NOW], [0]]})
    outcome, seen = _outcomes(cloud)["A profile is newer than a minute"]
    assert outcome is Outcome.SKIPPED
    assert "no process holds GPU memory" in seen


def test_nodes_that_offer_their_gpus_without_a_plugin_in_a_pod_are_fine() -> None:
    cloud = copy.deepcopy(CLOUD)
    del cloud["pods"]["nvidia-x"], cloud["pods"]["amd-x"]
    outcomes = _outcomes(cloud)
    assert outcomes["Device plugin runs on every GPU node"][0] is Outcome.SKIPPED
    assert outcomes["GPU driver answers in every pool"][0] is Outcome.SKIPPED


def test_a_node_without_gpus_and_without_a_plugin_is_not() -> None:
    cloud = copy.deepcopy(CLOUD)
    del cloud["pods"]["nvidia-x"], cloud["pods"]["amd-x"]
    cloud["nodes"]["gpu-0"]["status"]["allocatable"].clear()
    outcomes = _outcomes(cloud)
    assert outcomes["Device plugin runs on every GPU node"][0] is Outcome.FAILED


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=lambda vendor: vendor.name)
def test_the_stacks_own_plugins_are_known_whatever_their_strategy(
    vendor: GpuVendor, strategy: Strategy
) -> None:
    nodes = Nodes(label="agentpool", values=("gpu",))
    ours = DevicePlugin(vendor=vendor, strategy=strategy, image="image", nodes=nodes, taints=())
    cloud = copy.deepcopy(CLOUD)
    pod = cloud["pods"][f"{vendor.name}-x"]
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": ours.name}
    assert _outcomes(cloud)["Device plugin runs on every GPU node"][0] is Outcome.PASSED


def test_slices_of_a_gpu_are_counted() -> None:
    cloud = copy.deepcopy(CLOUD)
    cloud["nodes"]["gpu-0"]["status"]["allocatable"] = {"nvidia.com/mig-1g.10gb": "7", "cpu": "24"}
    assert _outcomes(cloud)["GPU nodes are tainted and offer their GPUs"] == (
        Outcome.PASSED,
        "allocatable GPUs: 8 in amd, 7 in gpu",
    )


def test_a_machine_that_cannot_run_commands_in_pods_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    live = _live(CLOUD)

    def nothing(*_: object) -> str:
        raise NothingToCheck("kubectl is not on PATH")

    monkeypatch.setattr(live.pods, "run", nothing)
    results = {result.check.title: result for result in run(live, CHECKS)}
    assert results["GPU driver answers in every pool"].outcome is Outcome.SKIPPED
    assert "kubectl" in results["GPU driver answers in every pool"].seen
