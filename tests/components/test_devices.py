# SPDX-License-Identifier: Apache-2.0
"""Device plugins and readiness checks: for which pools they are declared, where they run, with which rights."""

from typing import Any

import pytest
import yaml

from components.config_problems import ConfigError
from tests.components.conftest import CHECKOUT, EXISTING, run_program
from tests.components.recorder import Recording

DAEMON_SET, JOB = "kubernetes:apps/v1:DaemonSet", "kubernetes:batch/v1:Job"
NVIDIA = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
AMD = {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists", "effect": "NoSchedule"}
POOLS: list[dict[str, Any]] = [
    {"name": "whole", "vmSize": "Standard_NC24ads_A100_v4", "count": 2},
    {
        "name": "cut",
        "vmSize": "Standard_NC24ads_A100_v4",
        "mig": {"profile": "1g", "strategy": "mixed"},
        "spot": True,
    },
    {"name": "instinct", "vmSize": "Standard_ND96isr_MI300X_v5"},
    {"name": "operated", "vmSize": "Standard_NC24ads_A100_v4", "driver": "None"},
    {"name": "elastic", "vmSize": "Standard_NC24ads_A100_v4", "autoscale": {"min": 0, "max": 3}},
]


@pytest.fixture(scope="module")
def stack() -> Recording:
    """The stack `dev` with pools of every kind."""
    config = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"]
    return run_program(config | {"gpuheap:gpuPools": POOLS})


def pod(resource: Any) -> Any:
    return resource.inputs["spec"]["template"]["spec"]


def pools_of(resource: Any) -> list[str]:
    affinity = pod(resource)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("kubernetes.azure.com/agentpool", "In")
    return list(expression["values"])


def test_each_pool_has_one_plugin_with_its_strategy(stack: Recording) -> None:
    plugins = {
        each.inputs["metadata"]["name"]: pools_of(each)
        for each in stack.of_type(DAEMON_SET)
        if each.inputs["metadata"]["namespace"] == "gpu-device-plugins"
    }
    assert plugins == {
        "nvidia-device-plugin": ["whole", "elastic"],
        "nvidia-device-plugin-mixed": ["cut"],
        "amd-device-plugin": ["instinct"],
    }, "an operator that installs the driver brings its own plugin"


@pytest.mark.parametrize(
    ("plugin", "tolerations"),
    [
        ("nvidia-device-plugin", [NVIDIA]),
        ("nvidia-device-plugin-mixed", [NVIDIA, SPOT]),
        ("amd-device-plugin", [AMD]),
    ],
)
def test_a_plugin_tolerates_all_taints_of_its_nodes(
    stack: Recording, plugin: str, tolerations: list[Any]
) -> None:
    assert pod(stack[f"device-plugins-{plugin}"])["tolerations"] == tolerations


def test_nvidias_plugin_is_told_the_strategy(stack: Recording) -> None:
    for plugin, strategy in (("nvidia-device-plugin", "none"), ("nvidia-device-plugin-mixed", "mixed")):
        (container,) = pod(stack[f"device-plugins-{plugin}"])["containers"]
        assert {"name": "MIG_STRATEGY", "value": strategy} in container["env"]


def test_only_the_plugin_for_slices_has_the_right_to_watch_them(stack: Recording) -> None:
    added = {}
    for plugin in ("nvidia-device-plugin", "nvidia-device-plugin-mixed", "amd-device-plugin"):
        (container,) = pod(stack[f"device-plugins-{plugin}"])["containers"]
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        added[plugin] = container["securityContext"]["capabilities"].get("add", [])
    assert added == {
        "nvidia-device-plugin": [],
        "nvidia-device-plugin-mixed": ["SYS_ADMIN"],
        "amd-device-plugin": [],
    }


def test_pools_that_have_nodes_are_checked_each_node_once(stack: Recording) -> None:
    checks = {
        job.inputs["metadata"]["name"]: (
            job.inputs["spec"]["completions"],
            job.inputs["spec"]["parallelism"],
        )
        for job in stack.of_type(JOB)
    }
    assert checks == {"whole": (2, 2), "cut": (1, 1), "instinct": (1, 1), "operated": (1, 1)}, (
        "a pool without nodes is not made to start one for the check"
    )


@pytest.mark.parametrize(
    ("pool", "resource", "tolerations", "minimum"),
    [
        ("whole", "nvidia.com/gpu", [NVIDIA], "535.0"),
        ("cut", "nvidia.com/mig-1g.10gb", [NVIDIA, SPOT], "535.0"),
        ("instinct", "amd.com/gpu", [AMD], "6.7"),
    ],
)
def test_a_check_asks_for_what_the_pool_offers(
    stack: Recording, pool: str, resource: str, tolerations: list[Any], minimum: str
) -> None:
    job = stack[f"readiness-{pool}"]
    (container,) = pod(job)["containers"]
    assert container["resources"]["limits"][resource] == "1"
    assert pod(job)["tolerations"] == tolerations
    assert pools_of(job) == [pool]
    assert {"name": "MINIMUM_DRIVER", "value": minimum} in container["env"]
    script = "nvidia.sh" if resource.startswith("nvidia") else "amd.sh"
    assert container["command"] == [
        "sh",
        "-c",
        (CHECKOUT / "components" / "checks" / script).read_text(),
    ]


def test_what_a_failed_check_said_becomes_the_pods_status(stack: Recording) -> None:
    (container,) = pod(stack["readiness-whole"])["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert stack["readiness-whole"].inputs["spec"]["backoffLimit"] == 0


def test_a_check_waits_for_pools_and_plugins(stack: Recording) -> None:
    needs = stack.outlived_by("readiness-whole")
    assert {"gpu-pool-whole", "device-plugins-nvidia-device-plugin"} <= needs


def test_the_sample_workload_starts_when_nodes_are_ready_and_borders_are_up() -> None:
    config = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"]
    sample = {"image": "registry.example/sample:1", "pool": "gpu", "workspace": "gpu-training"}
    stack = run_program(config | {"gpuheap:sampleWorkload": sample})
    needs = stack.outlived_by("sample-workload")
    assert {"readiness-gpu", "workspaces-gpu-training-default-deny"} <= needs
    spec = pod(stack["sample-workload"])
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert spec["tolerations"] == [NVIDIA]
    assert pools_of(stack["sample-workload"]) == ["gpu"]


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"sampleWorkload": {"image": "a/b", "pool": "none", "workspace": "a"}}, "sampleWorkload.pool"),
        ({"sampleWorkload": {"image": "a/b", "pool": "whole", "workspace": "b"}}, "sampleWorkload.workspace"),
        ({"devices": {"readiness": False, "minimumDriver": {"nvidia": "550.0"}}}, "devices.minimumDriver"),
        ({"placement": {"taints": {"nvidia": "sku=gpu:NoSchedule"}}}, "placement.taints.nvidia"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], path: str) -> None:
    config = {"gpuheap:gpuPools": POOLS[:1], "gpuheap:workspaces": [{"name": "a"}]}
    with pytest.raises(ConfigError) as refusal:
        run_program(EXISTING | config | {f"gpuheap:{key}": value for key, value in keys.items()})
    assert [problem.path for problem in refusal.value.problems] == [f"gpuheap:{path}"]


def test_pools_made_elsewhere_get_no_plugin_and_no_check(existing: Recording) -> None:
    names = {name for name in existing.resources if name.startswith(("device-plugins", "readiness"))}
    assert not names


def test_the_configuration_can_leave_plugins_and_checks_out() -> None:
    chosen = {"plugins": [], "readiness": False}
    stack = run_program(EXISTING | {"gpuheap:gpuPools": POOLS[:1], "gpuheap:devices": chosen})
    assert not stack.of_type(JOB)
    assert "device-plugins-namespace" not in stack.resources
