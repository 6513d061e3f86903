# SPDX-License-Identifier: Apache-2.0
"""The policies of a subnet, wherever it was declared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.azure.records import Resource
from localcloud.azure.store import Store
from localcloud.kube.private_link_service import NotPossible
from localcloud.kube.private_link_subnet import POLICIES, prepare

NETWORK = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/hub"
SUBNETS = [{"name": "nodes", POLICIES: "Enabled"}, {"name": "links", POLICIES: "Enabled"}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db")
    network = Resource(
        id=NETWORK, token="azure-native:network:VirtualNetwork", outputs={"subnets": SUBNETS, "name": "hub"}
    )
    store.create_resource(network, actor="test")
    yield store
    store.close()


def test_those_of_a_subnet_of_its_own_are_disabled(store: Store) -> None:
    subnet = Resource(
        id=f"{NETWORK}/subnets/own", token="azure-native:network:Subnet", outputs={POLICIES: "Enabled"}
    )
    store.create_resource(subnet, actor="test")
    prepare(store, subnet.id, actor="test")
    changed = store.resource(subnet.id)
    assert changed
    assert changed.outputs == {POLICIES: "Disabled"}


def test_those_of_a_subnet_within_its_network_are_disabled_and_no_others(store: Store) -> None:
    prepare(store, f"{NETWORK}/subnets/links", actor="test")
    network = store.resource(NETWORK)
    assert network
    assert network.outputs["name"] == "hub"
    assert {each["name"]: each[POLICIES] for each in network.outputs["subnets"]} == {
        "nodes": "Enabled",
        "links": "Disabled",
    }


def test_disabling_them_again_is_no_change(store: Store) -> None:
    prepare(store, f"{NETWORK}/subnets/links", actor="test")
    before = len(store.events())
    prepare(store, f"{NETWORK}/subnets/links", actor="test")
    assert len(store.events()) == before


@pytest.mark.parametrize("missing", [f"{NETWORK}/subnets/none", "/subscriptions/s/none/subnets/links"])
def test_a_subnet_that_is_not_there_is_refused_by_its_id(store: Store, missing: str) -> None:
    with pytest.raises(NotPossible, match=missing):
        prepare(store, missing, actor="test")
