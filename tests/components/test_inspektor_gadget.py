# SPDX-License-Identifier: Apache-2.0
"""The extension, its settings, and which profilers a stack has."""

from typing import Any

import pytest

from components.inspektor_gadget import fingerprint
from components.settings.profilers import InspektorGadget as Settings
from tests.components.configs import accepted, only_problem, refused
from tests.components.conftest import CHECKOUT, EXISTING, run_program
from tests.components.recorder import Recording

EXTENSION = "azure-native:kubernetesconfiguration:Extension"


@pytest.fixture(scope="module")
def gpuheap_alone() -> Recording:
    return run_program({**EXISTING, "gpuheap:profilers": ["gpuheap"]})


@pytest.fixture(scope="module")
def gadget_alone() -> Recording:
    config = {key: value for key, value in EXISTING.items() if key != "gpuheap:agent"}
    return run_program({**config, "gpuheap:profilers": ["inspektor-gadget"]})


def test_the_extension_has_gpu_observability_and_azure_monitor_on(dev: Recording) -> None:
    extension = dev["inspektor-gadget"].inputs
    assert extension["extensionType"] == "microsoft.inspektorgadget"
    assert extension["releaseTrain"] == "preview"
    assert extension["configurationSettings"]["gpuObservability.enabled"] == "true"
    assert extension["configurationSettings"]["azureMonitor.enabled"] == "true"
    assert extension["scope"] == {"cluster": {"releaseNamespace": "gadget"}}
    assert "version" not in extension, "a version and automatic upgrades exclude each other"


def test_a_pinned_version_ends_automatic_upgrades() -> None:
    stack = run_program({**EXISTING, "gpuheap:inspektorGadget": {"version": "1.2.0"}})
    assert stack["inspektor-gadget"].inputs["version"] == "1.2.0"
    assert stack["inspektor-gadget"].inputs["autoUpgradeMinorVersion"] is False


def test_the_extension_comes_after_the_metrics_that_it_needs(dev: Recording) -> None:
    assert "metrics-association" in dev["inspektor-gadget"].needs


def test_a_setting_that_is_said_no_longer_is_told_its_default() -> None:
    # The service merges: only what is told again is set back.
    said, unsaid = (
        Settings.model_validate({"logLevel": "debug", "experimental": True}).told(),
        Settings().told(),
    )
    assert said.keys() == unsaid.keys()
    assert said["inspektor-gadget.config.daemonLogLevel"] == "debug"
    assert unsaid["inspektor-gadget.config.daemonLogLevel"] == "info"
    assert unsaid["inspektor-gadget.config.experimental"] == "false"


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("config.daemonLogLevel", "info"),
        ("config.hookMode", "auto"),
        ("config.operator.oci.verify-image", "true"),
        ("hostPID", "true"),
    ],
)
def test_documented_settings_have_their_documented_defaults(key: str, default: str) -> None:
    # https://learn.microsoft.com/azure/aks/inspektor-gadget-configure#configure-the-extension
    assert Settings().told()[f"inspektor-gadget.{key}"] == default


def test_a_list_is_told_as_one_setting_so_that_a_shorter_one_leaves_nothing() -> None:
    key = "inspektor-gadget.config.operator.oci.allowed-gadgets"
    two = Settings.model_validate({"allowedGadgets": ["example.io/gadget/*", "example.io/own:v1"]}).told()
    assert two[key] == "{example.io/gadget/*,example.io/own:v1}"
    assert Settings.model_validate({"allowedGadgets": []}).told()[key] == "{}"
    assert two.keys() - Settings().told().keys() == {key}, "on no stack that does not ask for it"


def test_both_names_of_the_hook_mode_say_the_same() -> None:
    told = Settings.model_validate({"hookMode": "podinformer"}).told()
    names = ("config.hookMode", "config.operator.kubemanager.hook-mode")
    assert [told[f"inspektor-gadget.{name}"] for name in names] == ["podinformer", "podinformer"]


def test_every_setting_has_its_source_in_the_documents() -> None:
    page = (CHECKOUT / "docs" / "extension-settings.md").read_text()
    whole = Settings.model_validate({"allowedGadgets": []}).told()
    assert [key for key in whole if f"`{key}`" not in page] == []


def test_every_value_is_text() -> None:
    assert all(isinstance(value, str) for value in Settings().told().values())


def test_changed_settings_replace_the_pods_that_have_read_the_old_ones(dev: Recording) -> None:
    restart = dev["inspektor-gadget-restart"]
    assert restart.type == "kubernetes:apps/v1:DaemonSetPatch"
    assert restart.inputs["metadata"] == {"name": "gadget", "namespace": "gadget"}
    annotations = restart.inputs["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"gpuheap/settings": fingerprint(Settings().told())}
    assert fingerprint(Settings().told()) != fingerprint(
        Settings.model_validate({"logLevel": "debug"}).told()
    )
    assert "inspektor-gadget" in restart.needs


def test_where_its_pods_run_and_their_environment_are_declared_on_the_daemon_set(dev: Recording) -> None:
    assert "spec" not in dev["inspektor-gadget-restart"].inputs["spec"]["template"]
    wanted = {"nodeSelector": {"agentpool": "gpu"}, "additionalEnv": {"HTTPS_PROXY": "http://proxy:3128"}}
    stack = run_program({**EXISTING, "gpuheap:inspektorGadget": wanted})
    assert stack["inspektor-gadget-restart"].inputs["spec"]["template"]["spec"] == {
        "nodeSelector": {"agentpool": "gpu"},
        "containers": [
            {"name": "gadget", "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
        ],
    }
    assert stack["inspektor-gadget"].inputs["configurationSettings"] == Settings().told()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"nodeSelector": {"no such key": "x"}}, "is no key of a Kubernetes label"),
        ({"nodeSelector": {"agentpool": "a b"}}, "is no value of a Kubernetes label"),
        ({"additionalEnv": {"1ST": "x"}}, "is no name of an environment variable"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_before(settings: dict[str, Any], reason: str) -> None:
    assert reason in only_problem(inspektorGadget=settings).reason


def test_without_the_extension_pyroscope_has_a_namespace_of_its_own(gpuheap_alone: Recording) -> None:
    assert gpuheap_alone.of_type(EXTENSION) == []
    assert gpuheap_alone["pyroscope"].inputs["namespace"] == "pyroscope"
    assert "pyroscope-namespace" in gpuheap_alone["pyroscope"].needs
    assert gpuheap_alone.outputs["profilers"] == ["gpuheap"]
    assert gpuheap_alone.outputs["pyroscopeNamespace"] == "pyroscope"
    assert "inspektorGadgetExtensionId" not in gpuheap_alone.outputs


def test_without_our_agent_no_image_is_asked_for(gadget_alone: Recording) -> None:
    assert gadget_alone.of_type("kubernetes:apps/v1:DaemonSet") == []
    assert "agentDaemonSet" not in gadget_alone.outputs
    assert gadget_alone["pyroscope"].inputs["namespace"] == "gadget"


@pytest.mark.parametrize(("stack", "label"), [("gpuheap_alone", "gpuheap"), ("gadget_alone", "gadget")])
def test_only_the_profilers_that_are_there_reach_pyroscope(
    stack: str, label: str, request: pytest.FixtureRequest
) -> None:
    recording: Recording = request.getfixturevalue(stack)
    peers = recording["pyroscope-access"].inputs["spec"]["ingress"][1]["from"]
    spaces = [peer["namespaceSelector"]["matchLabels"] for peer in peers if "namespaceSelector" in peer]
    assert spaces == [{"kubernetes.io/metadata.name": label}]


def test_alerts_are_about_the_profilers_that_are_there(
    gadget_alone: Recording, gpuheap_alone: Recording
) -> None:
    def names(stack: Recording) -> set[str]:
        rules = stack.only("azure-native:alertsmanagement:PrometheusRuleGroup").inputs["rules"]
        return {rule["alert"] for rule in rules}

    assert "InspektorGadgetNotReady" not in names(gpuheap_alone)
    assert "GpuheapAgentNotReady" not in names(gadget_alone)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"profilers": []}, "gpuheap:profilers"),
        ({"profilers": ["gpuheap", "gpuheap"]}, "a profiler stands twice"),
        ({"profilers": ["gadget"]}, "gpuheap:profilers"),
        ({"profilers": ["gpuheap"], "inspektorGadget": {"logLevel": "debug"}}, "its profiler is not there"),
        ({"profilers": ["inspektor-gadget"]}, "agent with gpuheap among gpuheap:profilers"),
        ({"inspektorGadget": {"logLevel": "loud"}}, "trace, debug, info"),
        ({"inspektorGadget": {"allowedGadgets": ["a,b"]}}, "'a,b' is no name of an image"),
        (
            {"inspektorGadget": {"eventBufferLength": 9}},
            "did you mean gpuheap:inspektorGadget.eventsBufferLength?",
        ),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], words: str) -> None:
    assert words in "\n".join(map(str, refused(**keys)))


def test_the_agents_image_is_asked_for_only_where_the_agent_is() -> None:
    assert accepted(profilers=["inspektor-gadget"], agent=None).agent is None
