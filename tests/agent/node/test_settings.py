# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from gpuheap.node.settings import AgentSettings, SettingsError

GOOD: dict[str, Any] = {
    "pyroscope_url": "http://pyroscope:4040",
    "interval_seconds": 15,
    "metrics_address": "0.0.0.0:9408",
    "node": "aks-gpu-0",
    "cluster": "prod",
}


def test_good_settings_are_taken() -> None:
    settings = AgentSettings.checked(**GOOD)
    assert (settings.metrics_host, settings.metrics_port) == ("0.0.0.0", 9408)
    assert settings.pyroscope_url == "http://pyroscope:4040"


@pytest.mark.parametrize(("given", "url"), [("", None), (None, None), ("https://h/base/", "https://h/base")])
def test_pushing_can_be_left_off_and_a_path_is_kept(given: str | None, url: str | None) -> None:
    assert AgentSettings.checked(**{**GOOD, "pyroscope_url": given}).pyroscope_url == url


def test_an_address_of_internet_protocol_6_is_taken() -> None:
    settings = AgentSettings.checked(**{**GOOD, "metrics_address": "[::]:9408"})
    assert (settings.metrics_host, settings.metrics_port) == ("::", 9408)


@pytest.mark.parametrize(
    ("name", "value", "way_to_set"),
    [
        ("pyroscope_url", "pyroscope:4040", "GPUHEAP_PYROSCOPE_URL"),
        ("pyroscope_url", "ftp://pyroscope", "GPUHEAP_PYROSCOPE_URL"),
        ("pyroscope_url", "http://", "GPUHEAP_PYROSCOPE_URL"),
        ("pyroscope_url", "http://host:port", "GPUHEAP_PYROSCOPE_URL"),
        ("pyroscope_url", "http://host/?tenant=a", "GPUHEAP_PYROSCOPE_URL"),
        ("interval_seconds", 0, "GPUHEAP_INTERVAL_SECONDS"),
        ("interval_seconds", 3601, "GPUHEAP_INTERVAL_SECONDS"),
        ("metrics_address", "9408", "GPUHEAP_METRICS_ADDRESS"),
        ("metrics_address", ":9408", "GPUHEAP_METRICS_ADDRESS"),
        ("metrics_address", "0.0.0.0:http", "GPUHEAP_METRICS_ADDRESS"),
        ("metrics_address", "0.0.0.0:70000", "GPUHEAP_METRICS_ADDRESS"),
        ("node", "", "GPUHEAP_NODE"),
    ],
)
def test_a_bad_setting_is_refused_with_what_was_given_and_how_to_set_it(
    name: str, value: object, way_to_set: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        AgentSettings.checked(**{**GOOD, name: value})
    assert str(value) in str(caught.value)
    assert way_to_set in str(caught.value)


@pytest.mark.parametrize("number", [0, -1, (1 << 24) + 1])
def test_a_table_of_no_allocations_or_of_too_many_is_refused(number: int) -> None:
    with pytest.raises(SettingsError) as refused:
        AgentSettings.checked(**{**GOOD, "live_allocations": number})
    assert f"table of {number} allocations: allowed are 1 to 16777216" in str(refused.value)
    assert "GPUHEAP_LIVE_ALLOCATIONS" in str(refused.value)
