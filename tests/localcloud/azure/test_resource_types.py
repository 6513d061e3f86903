# SPDX-License-Identifier: Apache-2.0
"""What is read in the SDK's source must be what Python makes of its classes."""

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest
from pulumi._types import input_type_py_to_pulumi_names

from localcloud.azure.known_types import KNOWN
from localcloud.azure.resource_types import (
    Enumeration,
    ListOf,
    MapOf,
    ObjectOf,
    Primitive,
    UnknownType,
    resource_type,
)

# Beside the simulated ones: the widest type of the SDK, one with list defaults, one with an odd class name.
TYPES = sorted({*KNOWN, "compute:VirtualMachineScaleSet", "storage:StorageAccount", "cdn:Profile"})


@pytest.mark.parametrize("path", TYPES)
def test_inputs_are_those_of_the_sdk_class(path: str) -> None:
    module_name, _, name = path.partition(":")
    module: Any = importlib.import_module(f"pulumi_azure_native.{module_name}")
    arguments = getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")
    parameters = inspect.signature(arguments.__init__).parameters
    wire = input_type_py_to_pulumi_names(arguments)
    required = {
        wire[key] for key, one in parameters.items() if key != "__self__" and one.default is one.empty
    }
    read = resource_type(f"azure-native:{path}").inputs
    assert set(read) == set(wire.values())
    assert {key for key, one in read.items() if one.required} == required


@pytest.mark.parametrize("path", TYPES)
def test_outputs_are_those_of_the_sdk_class(path: str) -> None:
    module_name, _, name = path.partition(":")
    resource = getattr(importlib.import_module(f"pulumi_azure_native.{module_name}"), name)
    properties = {key for key, one in vars(resource).items() if isinstance(one, property)}
    read = resource_type(f"azure-native:{path}").outputs
    assert len(read) == len(properties)


def test_nested_types_enumerations_lists_and_maps_are_followed() -> None:
    inputs = resource_type("azure-native:containerservice:ManagedCluster").inputs
    pools = inputs["agentPoolProfiles"].shape
    assert isinstance(pools, ListOf) and isinstance(pools.item, ObjectOf)
    mode = pools.item.properties["mode"].shape
    assert mode == Enumeration("AgentPoolMode", ("System", "User", "Gateway"))
    assert pools.item.properties["name"].required
    assert pools.item.properties["spotMaxPrice"].shape == Primitive("number")
    assert inputs["tags"].shape == MapOf(Primitive("string"))


def test_values_that_azure_only_calls_known_are_no_limit() -> None:
    flows = resource_type("azure-native:monitor:DataCollectionRule").inputs["dataFlows"].shape
    assert isinstance(flows, ListOf) and isinstance(flows.item, ObjectOf)
    assert flows.item.properties["streams"].shape == ListOf(Primitive("string"))


def test_an_api_version_in_the_token_does_not_matter() -> None:
    old = resource_type("azure-native:network/v20240501:Subnet")
    assert old.token == "azure-native:network:Subnet"
    assert resource_type("azure-native:network/v20240101preview:Subnet") is old


def test_the_api_version_is_the_sdk_s() -> None:
    assert resource_type("azure-native:dashboard:Grafana").api_version == "2024-10-01"


@pytest.mark.parametrize(
    ("token", "named"),
    [
        ("azure-native:network:Subnett", "Subnett"),
        ("azure-native:nowhere:Subnet", "nowhere"),
        ("aws:s3:Bucket", "aws:s3:Bucket"),
    ],
)
def test_an_unknown_type_is_named(token: str, named: str) -> None:
    with pytest.raises(UnknownType, match=named):
        resource_type(token)


def test_the_sdk_itself_is_not_loaded() -> None:
    program = (
        "import sys; from localcloud.azure.resource_types import resource_type;"
        "resource_type('azure-native:network:VirtualNetwork').inputs['subnets'].shape.item.properties;"
        "print('pulumi' in sys.modules, 'pulumi_azure_native' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"], "loading it takes seconds in every engine run"
