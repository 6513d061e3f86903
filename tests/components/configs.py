# SPDX-License-Identifier: Apache-2.0
"""Configurations for tests: the smallest one that is accepted, and what is said of one that is not."""

from typing import Any

import pytest

from components.config import StackConfig, parse
from components.config_problems import ConfigError, Problem

ENOUGH: dict[str, Any] = {
    "gpuPools": [{"name": "gpu", "vmSize": "Standard_NC24ads_A100_v4"}],
    "agent": {"build": {"registry": "example.azurecr.io"}},
}


def accepted(stack: str = "prod", **keys: Any) -> StackConfig:
    return parse(ENOUGH | keys, stack=stack, location="westeurope")


def refused(stack: str = "prod", **keys: Any) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        accepted(stack, **keys)
    return caught.value.problems


def only_problem(stack: str = "prod", **keys: Any) -> Problem:
    (problem,) = refused(stack, **keys)
    return problem


EXISTING: dict[str, Any] = {"existing": {"name": "shared", "resourceGroup": "shared-rg"}}
