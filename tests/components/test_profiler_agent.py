# SPDX-License-Identifier: Apache-2.0
"""The agent's DaemonSet: where it runs, what it may do, what it is told."""

from typing import Any

import pytest

from tests.components.recorder import Recording


@pytest.fixture
def pod(dev: Recording) -> dict[str, Any]:
    spec: dict[str, Any] = dev["profiler-agent"].inputs["spec"]["template"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return dict(container)


def test_it_runs_on_gpu_nodes_only_and_tolerates_their_taints_and_those_of_spot_nodes(
    pod: dict[str, Any],
) -> None:
    assert pod["spec"]["nodeSelector"] == {"kubernetes.azure.com/accelerator": "nvidia"}
    assert pod["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists", "effect": "NoSchedule"},
    ]


def test_it_has_no_more_rights_than_tracing_takes(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security["privileged"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"]["drop"] == ["ALL"]
    assert set(security["capabilities"]["add"]) == {
        "BPF",
        "PERFMON",
        "SYS_ADMIN",
        "SYS_PTRACE",
        "DAC_READ_SEARCH",
    }


def test_it_has_no_token_for_the_api_server(dev: Recording, pod: dict[str, Any]) -> None:
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert dev["profiler-agent-account"].inputs["automountServiceAccountToken"] is False


def test_its_namespace_allows_what_it_needs(dev: Recording) -> None:
    labels = dev["profiler-agent-namespace"].inputs["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}


def test_its_settings_are_those_of_the_agents_command_line(container: dict[str, Any]) -> None:
    assert container["args"] == ["agent"]
    settings = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert settings == {
        "GPUHEAP_PYROSCOPE_URL": "http://pyroscope.gadget.svc:4040",
        "GPUHEAP_INTERVAL_SECONDS": "15",
        "GPUHEAP_METRICS_ADDRESS": "0.0.0.0:9408",
        "GPUHEAP_CLUSTER": "gpuheap-dev",
        "GPUHEAP_NODE": None,
    }
    (node,) = (variable for variable in container["env"] if variable["name"] == "GPUHEAP_NODE")
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_it_is_scraped_where_it_is_probed(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "9408"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9408}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 9408}


def test_the_image_is_the_built_one_or_the_given_one(dev: Recording, existing: Recording) -> None:
    (built,) = dev["agent-image"].inputs["tags"]
    for stack, image in ((dev, built), (existing, "registry.example/agent@sha256:" + "a" * 64)):
        (container,) = stack["profiler-agent"].inputs["spec"]["template"]["spec"]["containers"]
        assert container["image"] == stack.outputs["agentImage"] == image


def test_the_image_is_pushed_before_a_node_can_ask_for_it(dev: Recording) -> None:
    assert "agent-image" in dev.outlived_by("profiler-agent")
