# SPDX-License-Identifier: Apache-2.0
"""The provider under the real engine: what only the engine can tell."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localcloud.azure.records import Fault
from localcloud.azure.store import Store
from tests.localcloud.plugin.conftest import MakeProject, Project

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.engine]

PROGRAM = """
import pulumi
from pulumi_azure_native import managedidentity, monitor, network, resources

config = pulumi.Config()
group = resources.ResourceGroup("group", resource_group_name="small", location="westeurope")
net = network.VirtualNetwork(
    "net",
    resource_group_name=group.name,
    virtual_network_name="net",
    address_space=network.AddressSpaceArgs(address_prefixes=["10.0.0.0/8"]),
    tags={"purpose": config.get("purpose") or "test", "word": config.require_secret("word")},
    location=config.get("location"),
)
network.Subnet("subnet", resource_group_name=group.name, virtual_network_name=net.name, subnet_name="one",
    address_prefix="10.0.0.0/24")
identity = managedidentity.UserAssignedIdentity("identity", resource_group_name=group.name)
monitor.AzureMonitorWorkspace("metrics", resource_group_name=group.name, azure_monitor_workspace_name="metrics")
pulumi.export("principal", identity.principal_id)
pulumi.export("identity", identity.name)
pulumi.export("found", network.get_virtual_network_output(
    resource_group_name=group.name, virtual_network_name=net.name).address_space.address_prefixes)
"""


@pytest.fixture
def project(make_project: MakeProject, state: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("GPUHEAP_LOCALCLOUD", str(state))
    project = make_project(PROGRAM)
    project.environment["GPUHEAP_LOCALCLOUD"] = str(state)
    project.succeed("config", "set", "--secret", "word", "hunter2")
    return project


def _operations(project: Project) -> dict[str, str]:
    """What a preview would do, by the resource's name in the program; nothing is left out but what stays."""
    plan: Any = json.loads(project.succeed("preview", "--json"))
    return {step["urn"].rpartition("::")[2]: step["op"] for step in plan["steps"] if step["op"] != "same"}


def test_one_life_of_a_small_program(project: Project, store: Store) -> None:
    preview = project.succeed("preview", "--diff")
    assert "+ 6 to create" in preview and store.resources() == []
    project.succeed("up", "--yes", "--skip-preview")
    outputs = json.loads(project.succeed("stack", "output", "--json"))
    assert outputs["found"] == ["10.0.0.0/8"] and outputs["identity"].startswith("identity")
    assert "hunter2" not in project.succeed("stack", "export"), "a secret must stay one in the outputs, too"
    project.succeed("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert _operations(project) == {}

    project.succeed("config", "set", "purpose", "more")
    plan: Any = json.loads(project.succeed("preview", "--json"))
    (step,) = [step for step in plan["steps"] if step["op"] != "same"]
    assert step["op"] == "update" and list(step["detailedDiff"]) == ["tags.purpose"]

    project.succeed("config", "set", "location", "northeurope")
    before = len(store.events())
    project.succeed("up", "--yes", "--skip-preview")
    done = [(event.verb, event.id.rpartition("/")[2]) for event in store.events()[before:]]
    # The subnet lies in the network: it goes before, and comes after it.
    assert done == [("delete", "one"), ("delete", "net"), ("create", "net"), ("create", "one")]
    moved = store.resource(_id("Microsoft.Network/virtualNetworks/net"))
    assert moved and moved.outputs["location"] == "northeurope" and moved.outputs["tags"]["word"] == "hunter2"

    project.succeed("destroy", "--yes", "--skip-preview")
    assert store.resources() == []


def test_what_somebody_changed_or_deleted_is_found_and_mended(project: Project, store: Store) -> None:
    project.succeed("up", "--yes", "--skip-preview")
    net = _id("Microsoft.Network/virtualNetworks/net")
    store.change_resource(
        net, lambda old: replace(old, outputs={**old.outputs, "tags": {}}), actor="somebody"
    )
    store.delete_resource(_id("Microsoft.Monitor/accounts/metrics"), actor="somebody")
    project.succeed("refresh", "--yes", "--skip-preview")
    assert _operations(project) == {"net": "update", "metrics": "create"}
    project.succeed("up", "--yes", "--skip-preview")
    mended = store.resource(net)
    assert mended and mended.outputs["tags"]["purpose"] == "test"
    assert store.resource(_id("Microsoft.Monitor/accounts/metrics"))


def test_an_operation_that_failed_half_way_is_finished_by_the_next_run(
    project: Project, store: Store
) -> None:
    fault = Fault(
        method="PUT", path="/accounts/metrics$", status=500, code="Boom", message="half done", after=True
    )
    store.add_fault(fault)
    code, printed = project.run("up", "--yes", "--skip-preview")
    assert code != 0 and "half done" in printed
    project.succeed("up", "--yes", "--skip-preview")
    metrics = store.resource(_id("Microsoft.Monitor/accounts/metrics"))
    assert metrics and metrics.outputs["provisioningState"] == "Succeeded"


def test_bad_inputs_are_shown_with_their_path_and_nothing_is_made(project: Project, store: Store) -> None:
    program = project.folder / "__main__.py"
    program.write_text(program.read_text().replace('["10.0.0.0/8"]', '["10.0.0.0/8"], colour="red"'))
    code, printed = project.run("preview")
    assert code != 0 and "colour" in printed
    program.write_text(
        PROGRAM.replace('azure_monitor_workspace_name="metrics"', 'azure_monitor_workspace_name="m"')
    )
    code, printed = project.run("preview")
    assert code != 0 and "azureMonitorWorkspaceName must be 4 to 44 letters" in printed
    assert store.resources() == []


def _id(rest: str) -> str:
    return f"/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/small/providers/{rest}"
