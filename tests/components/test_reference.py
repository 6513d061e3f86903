# SPDX-License-Identifier: Apache-2.0
"""What is written from the model of the configuration: the schema for editors, and the page of keys."""

import json
import re
from itertools import pairwise
from typing import Any, Final

import jsonschema
import pytest
import yaml

from components import reference
from components.config import parse
from components.reference_text import STACKS
from tests.components.conftest import CHECKOUT

VALUE: Final = re.compile(r"^\s*(- )?[\w:.-]+:\s+\S")


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    document = json.loads(reference.schema())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def stack_file(stack: str) -> Any:
    """A stack's file as an editor sees it: JSON has no dates."""
    return json.loads(
        json.dumps(yaml.safe_load((CHECKOUT / f"Pulumi.{stack}.yaml").read_text()), default=str)
    )


@pytest.mark.parametrize(
    ("file", "text"), [(reference.SCHEMA, reference.schema), (reference.PAGE, reference.page)]
)
def test_what_is_committed_is_what_the_model_says(file: Any, text: Any) -> None:
    assert file.read_text() == text(), "run `python -m components.reference`"


@pytest.mark.parametrize("stack", STACKS)
def test_the_example_stacks_are_right(stack: str, schema: jsonschema.Draft202012Validator) -> None:
    assert [error.message for error in schema.iter_errors(stack_file(stack))] == []
    keys = stack_file(stack)["config"]
    written = {
        key.removeprefix("gpuheap:"): value for key, value in keys.items() if key.startswith("gpuheap:")
    }
    assert parse(written, stack=stack, location=keys["azure-native:location"]).gpu_pools


@pytest.mark.parametrize("stack", STACKS)
def test_each_value_of_the_example_stacks_is_commented(stack: str) -> None:
    lines = (CHECKOUT / f"Pulumi.{stack}.yaml").read_text().splitlines()
    silent = [
        line.strip()
        for before, line in pairwise(lines)
        if VALUE.match(line)
        and not line.startswith("encryptionsalt")
        and "#" not in line
        and "#" not in before
    ]
    assert silent == [], "the line above says what it is, or may be"


@pytest.mark.parametrize("stack", STACKS)
def test_the_example_stacks_name_their_schema(stack: str) -> None:
    first = (CHECKOUT / f"Pulumi.{stack}.yaml").read_text().partition("\n")[0]
    path = first.removeprefix("# yaml-language-server: $schema=")
    assert (CHECKOUT / path) == reference.SCHEMA


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpuheap:gpuPool", {"vmSize": "Standard_NC24ads_A100_v4"}),
        ("gpuheap:gpuPools", [{"name": "Gpu", "vmSize": "Standard_NC24ads_A100_v4"}]),
        ("gpuheap:gpuPools", [{"name": "gpu", "vmSize": "Standard_NC24ads_A100_v4", "cuont": 1}]),
        ("gpuheap:cluster", {"mode": "automatick"}),
        ("gpuheap:cluster", {"existing": {"name": "shared"}}),
        ("gpuheap:network", {"nodeSubnet": 10}),
    ],
)
def test_the_schema_refuses_what_the_program_refuses(
    key: str, value: Any, schema: jsonschema.Draft202012Validator
) -> None:
    document = stack_file("dev")
    document["config"][key] = value
    assert not schema.is_valid(document)


def test_keys_of_azures_provider_are_not_the_schemas_business(
    schema: jsonschema.Draft202012Validator,
) -> None:
    document = stack_file("dev")
    document["config"]["azure-native:tenantId"] = "00000000-0000-0000-0000-000000000000"
    assert schema.is_valid(document)


def test_names_that_follow_from_the_stacks_need_not_be_written(
    schema: jsonschema.Draft202012Validator,
) -> None:
    pools = [{"name": "gpu", "vmSize": "Standard_NC24ads_A100_v4"}]
    agent = {"build": {"registry": "example.azurecr.io"}}
    config = {"gpuheap:gpuPools": pools, "gpuheap:agent": agent, "gpuheap:cluster": {"mode": "standard"}}
    assert schema.is_valid({"config": config})
