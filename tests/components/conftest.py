# SPDX-License-Identifier: Apache-2.0
"""The whole program, declared once without an engine: as stack `dev`, and over a cluster and Grafana that exist."""

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.components.recorder import Recording, record

CHECKOUT = Path(__file__).resolve().parents[2]

EXISTING: dict[str, Any] = {
    "azure-native:location": "westeurope",
    "gpuheap:cluster": {"existing": {"name": "shared", "resourceGroup": "shared-rg"}},
    "gpuheap:privateLink": {"subnet": "private-link"},
    "gpuheap:grafana": {"existing": {"name": "dashboards", "resourceGroup": "observability"}},
    "gpuheap:agent": {"image": "registry.example/agent@sha256:" + "a" * 64},
}


def run_program(config: Mapping[str, Any]) -> Recording:
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, default=str)
        for key, value in config.items()
    }
    return record(lambda: runpy.run_path(str(CHECKOUT / "__main__.py")), config=texts)


@pytest.fixture(scope="session")
def dev() -> Recording:
    """The program with the configuration of `Pulumi.dev.yaml`."""
    return run_program(yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"])


@pytest.fixture(scope="session")
def existing() -> Recording:
    """The program over a cluster and a Grafana that are there, with an agent image that is there."""
    return run_program(EXISTING)
