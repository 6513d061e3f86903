# SPDX-License-Identifier: Apache-2.0
"""The id of what an unfinished creation may have made."""

import json

import pytest
import yaml

from localcloud.azure.known_types import KNOWN
from recovery.ids import AZURE, UnknownType, physical_id
from tests.components.conftest import CHECKOUT, run_program

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("kind", AZURE)
def test_an_id_is_the_one_that_azure_gives(kind: str) -> None:
    template = KNOWN[kind].id.replace("{subscriptionId}", "{subscription}")
    assert AZURE[kind].strip("/").lower() == template.strip("/").lower()


@pytest.mark.parametrize("stack", sorted(CHECKOUT.glob("Pulumi.*.yaml")), ids=lambda path: path.stem)
def test_every_resource_that_a_stack_makes_in_azure_has_an_id(stack: object) -> None:
    recording = run_program(yaml.safe_load(stack.read_text())["config"])  # type: ignore[attr-defined]
    made = [one for one in recording.resources.values() if one.type.startswith("azure-native:")]
    ids = [physical_id(one.type, json.loads(json.dumps(one.inputs)), SUBSCRIPTION) for one in made]
    assert len(ids) > 5
    assert len(set(ids)) == len(ids)


def test_another_api_version_changes_no_id() -> None:
    inputs = {"resourceGroupName": "rg", "virtualNetworkName": "net", "subnetName": "nodes"}
    assert physical_id("azure-native:network/v20240501:Subnet", inputs, "s") == (
        "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/net/subnets/nodes"
    )


def test_the_scope_of_a_role_is_an_id_itself() -> None:
    inputs = {"scope": "/subscriptions/s/resourceGroups/rg", "roleAssignmentName": "a-guid"}
    assert physical_id("azure-native:authorization:RoleAssignment", inputs, "s") == (
        "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Authorization/roleAssignments/a-guid"
    )


def test_a_helm_release_is_found_by_namespace_and_name() -> None:
    assert (
        physical_id("kubernetes:helm.sh/v3:Release", {"name": "p", "namespace": "gadget"}, "s") == "gadget/p"
    )


@pytest.mark.parametrize(
    "kind", ["kubernetes:core/v1:Service", "pulumi-python:dynamic/gpuheap:GrafanaDataSource"]
)
def test_what_can_be_made_once_more_needs_no_id(kind: str) -> None:
    assert physical_id(kind, {}, "s") is None


def test_a_type_that_nobody_knows_is_not_guessed() -> None:
    with pytest.raises(UnknownType, match="storage:StorageAccountThing"):
        physical_id("azure-native:storage:StorageAccountThing", {}, "s")
