# SPDX-License-Identifier: Apache-2.0
"""The extension."""

from tests.components.recorder import Recording


def test_the_extension_has_gpu_observability_and_azure_monitor_on(dev: Recording) -> None:
    extension = dev["inspektor-gadget"].inputs
    assert extension["extensionType"] == "microsoft.inspektorgadget"
    assert extension["releaseTrain"] == "preview"
    assert extension["configurationSettings"] == {
        "gpuObservability.enabled": "true",
        "azureMonitor.enabled": "true",
    }
    assert extension["scope"] == {"cluster": {"releaseNamespace": "gadget"}}
    assert "version" not in extension, "a version and automatic upgrades exclude each other"


def test_the_extension_comes_after_the_metrics_that_it_needs(dev: Recording) -> None:
    assert "metrics-association" in dev["inspektor-gadget"].needs
