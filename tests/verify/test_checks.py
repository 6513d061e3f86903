# SPDX-License-Identifier: Apache-2.0
"""Each check against a cloud that is as it should be, and against one that differs in the one thing it looks at.

The stand-ins answer with the shapes of the real APIs. The whole on a local cloud is in tests/engine.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node, Pod, Service
from rich.console import Console

from verify.checks import CHECKS, run
from verify.model import Check, CheckFailed, Live
from verify.table import print_table, to_json

CONTAINERS = {"containers": [{"name": "main"}]}
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
OUTPUTS = {
    "inspektorGadgetExtensionId": "/extension",
    "privateLinkServiceId": "/pls",
    "managedPrivateEndpointId": "/mpe",
    "pyroscopeDataSourceUid": "local-pyroscope",
    "pyroscopeUrl": "http://pyroscope.example:4040",
    "prometheusDataSourceUid": "prometheus",
    "dashboardUrl": "https://grafana.example/d/gpu-memory",
    "agentDaemonSet": "gpuheap/gpuheap-agent",
}
CLOUD: dict[str, dict[str, Any]] = {
    "arm": {
        "/extension": {
            "properties": {
                "provisioningState": "Succeeded",
                "configurationSettings": {"gpuObservability.enabled": "true"},
            }
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
        "dashboards/uid/gpu-memory": {"dashboard": {"title": "GPU memory"}},
    },
    "nodes": {
        "gpu-0": {
            "metadata": {"name": "gpu-0"},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/gpu": "1"}},
        }
    },
    "pods": {
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
        "node gpu-0 has no allocatable nvidia.com/gpu",
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


def _live(cloud: dict[str, Any]) -> Live:
    kubernetes: Any = _Kubernetes(cloud)
    return Live(
        outputs=OUTPUTS, kubernetes=kubernetes, arm=_Http(cloud["arm"]), grafana=_Http(cloud["grafana"])
    )


def test_every_check_passes_on_a_cloud_that_is_as_it_should_be() -> None:
    failed = [(result.check.title, result.seen) for result in run(_live(CLOUD), CHECKS) if not result.passed]
    assert failed == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_a_check_fails_alone_when_its_one_thing_is_wrong(check: Check) -> None:
    cloud = copy.deepcopy(CLOUD)
    break_it, expected = BREAKAGES[check.title]
    break_it(cloud)
    failed = [result for result in run(_live(cloud), CHECKS) if not result.passed]
    assert [result.check.title for result in failed] == [check.title]
    assert expected in failed[0].seen


def test_a_stack_without_outputs_fails_each_check_that_needs_one_and_says_so() -> None:
    live = _live(CLOUD)
    results = run(Live(outputs={}, kubernetes=live.kubernetes, arm=live.arm, grafana=live.grafana), CHECKS)
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
    assert [row["remedy"] is None for row in rows] == [result.passed for result in results]
