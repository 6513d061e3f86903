# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from localcloud.azure.records import Fault, GrafanaObject, Resource
from localcloud.azure.store import AlreadyThere, NotThere, Store
from tests.waiting import DEADLINE_SECONDS

ID = "/subscriptions/s/resourceGroups/RG"


def _resource(id: str, **outputs: object) -> Resource:
    return Resource(id=id, token="azure-native:resources:ResourceGroup", outputs=outputs)


def test_ids_are_found_in_any_spelling_and_kept_in_their_own(store: Store) -> None:
    store.create_resource(_resource(ID), actor="test")
    found = store.resource(ID.lower() + "/")
    assert found is not None and found.id == ID


def test_the_same_id_cannot_be_created_twice(store: Store) -> None:
    store.create_resource(_resource(ID), actor="test")
    with pytest.raises(AlreadyThere):
        store.create_resource(_resource(ID.upper()), actor="test")


def test_a_resource_goes_with_what_is_in_it_and_children_go_first(store: Store) -> None:
    for id in (ID, f"{ID}/providers/N/a/b", f"{ID}/providers/N/a/b/c/d", f"{ID}-other"):
        store.create_resource(_resource(id), actor="test")
    workspace = f"{ID}/providers/N/a/b"
    store.put_grafana_object(
        GrafanaObject(workspace_id=workspace, kind="dashboards", uid="u", body={}), actor="test"
    )
    assert store.delete_resource(ID, actor="test")
    assert [resource.id for resource in store.resources()] == [f"{ID}-other"]
    deleted = [event.id for event in store.events() if event.verb == "delete"]
    assert deleted == [f"{workspace}/c/d", f"{workspace}/dashboards/u", workspace, ID]
    assert not store.delete_resource(ID, actor="test")


def test_a_change_of_what_is_gone_is_refused(store: Store) -> None:
    with pytest.raises(NotThere):
        store.change_resource(ID, lambda old: old, actor="test")


def test_changes_from_many_threads_all_count(store: Store) -> None:
    store.create_resource(_resource(ID, count=0), actor="test")

    def add(_: int) -> None:
        store.change_resource(
            ID, lambda old: replace(old, outputs={"count": old.outputs["count"] + 1}), actor="test"
        )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(100)))
    found = store.resource(ID)
    assert found is not None and found.outputs["count"] == 100


def test_changes_from_several_processes_all_count(store: Store) -> None:
    store.create_resource(_resource(ID, count=0), actor="test")
    program = (
        "import sys; from dataclasses import replace; from pathlib import Path;"
        "from localcloud.azure.store import Store; s = Store(Path(sys.argv[1]));"
        "[s.change_resource(sys.argv[2],"
        " lambda o: replace(o, outputs={'count': o.outputs['count'] + 1}), actor='p') for _ in range(50)]"
    )
    command = [sys.executable, "-c", program, str(store.path), ID]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(DEADLINE_SECONDS) for process in processes] == [0, 0, 0]
    found = store.resource(ID)
    assert found is not None and found.outputs["count"] == 150


def test_another_store_on_the_same_file_sees_everything(store: Store) -> None:
    store.create_resource(_resource(ID), actor="test")
    store.add_profile({"pid": "1"}, b"pprof")
    other = Store(store.path)
    assert other.resources() == store.resources()
    assert other.profiles()[0].labels == {"pid": "1"} and other.profiles()[0].pprof == b"pprof"
    other.close()


def test_a_fault_acts_as_often_as_it_says_and_only_where_it_fits(store: Store) -> None:
    store.add_fault(Fault(method="PUT", path="/resourcegroups/rg$", status=409, code="Busy", times=2))
    assert store.take_fault("GET", ID) is None
    assert store.take_fault("PUT", f"{ID}/providers/x") is None
    taken = [store.take_fault("PUT", ID) for _ in range(3)]
    assert [fault and fault.code for fault in taken] == ["Busy", "Busy", None]
    assert store.faults() == []


def test_a_fault_can_act_once_on_every_path(store: Store) -> None:
    store.add_fault(Fault(method="PUT", path="/resourcegroups/", status=500, code="Busy", each=True))
    ids = ["/resourceGroups/a", "/resourceGroups/b", "/resourcegroups/A"]
    taken = [store.take_fault("PUT", id) for id in ids]
    assert [fault and fault.code for fault in taken] == ["Busy", "Busy", None]
    store.clear_faults()
    store.add_fault(Fault(method="PUT", path="/resourcegroups/", status=500, code="Again", each=True))
    assert store.take_fault("PUT", ids[0]), "rules begin to count when they are made"


def test_a_fault_without_a_number_acts_until_it_is_cleared(store: Store) -> None:
    fault = Fault(method="*", path="", status=500, code="Down", times=None)
    store.add_fault(fault)
    assert [store.take_fault("GET", "/x"), store.take_fault("PUT", "/y")] == [fault, fault]
    store.clear_faults()
    assert store.take_fault("GET", "/x") is None


def test_the_event_log_tells_create_from_update(store: Store) -> None:
    store.put_resource(_resource(ID), actor="one")
    store.put_resource(_resource(ID, a=1), actor="two")
    store.record(actor="three", verb="approve", id=ID)
    assert [(event.actor, event.verb) for event in store.events()] == [
        ("one", "create"),
        ("two", "update"),
        ("three", "approve"),
    ]
