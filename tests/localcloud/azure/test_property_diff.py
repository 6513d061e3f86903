# SPDX-License-Identifier: Apache-2.0
from pulumi.runtime.proto import provider_pb2 as pb

from localcloud.azure.property_diff import detailed_diff, replaced
from localcloud.azure.records import Json
from localcloud.plugin.values import UNKNOWN


def _kinds(old: Json, new: Json, *immutable: str) -> dict[str, str]:
    return {
        path: pb.PropertyDiff.Kind.Name(one.kind) for path, one in detailed_diff(old, new, immutable).items()
    }


def test_equal_inputs_have_no_difference() -> None:
    assert _kinds({"a": 1, "b": {"c": [1]}}, {"a": 1, "b": {"c": [1]}}, "a") == {}


def test_each_changed_property_is_named_by_its_path() -> None:
    old = {"count": 1, "tags": {"a": "1", "b/c": "2"}, "pools": [{"n": 1}, {"n": 2}], "gone": 1}
    new = {"count": 2, "tags": {"a": "1", "b/c": "3"}, "pools": [{"n": 1}, {"n": 3}, {"n": 4}], "come": 1}
    assert _kinds(old, new) == {
        "come": "ADD",
        "count": "UPDATE",
        "gone": "DELETE",
        "pools[1].n": "UPDATE",
        "pools[2]": "ADD",
        'tags["b/c"]': "UPDATE",
    }


def test_what_azure_cannot_change_in_place_replaces() -> None:
    old = {"vmSize": "a", "networkProfile": {"podCidr": "10.0.0.0/8", "loadBalancerSku": "standard"}}
    new = {"vmSize": "b", "networkProfile": {"podCidr": "10.1.0.0/16", "loadBalancerSku": "basic"}}
    found = detailed_diff(old, new, ["vmSize", "networkProfile.podCidr"])
    assert replaced(found) == ["networkProfile", "vmSize"]
    assert _kinds(old, new, "vmSize", "networkProfile.podCidr") == {
        "vmSize": "UPDATE_REPLACE",
        "networkProfile.podCidr": "UPDATE_REPLACE",
        "networkProfile.loadBalancerSku": "UPDATE",
    }


def test_a_change_inside_an_immutable_object_replaces() -> None:
    assert _kinds({"scope": {"a": {"b": 1}}}, {"scope": {"a": {"b": 2}}}, "scope") == {
        "scope.a.b": "UPDATE_REPLACE"
    }


def test_elements_added_to_an_immutable_list_do_not_replace() -> None:
    """azure-native's own behaviour, which a program must know of: `replace_on_changes` is needed."""
    assert _kinds({"groupIds": ["a"]}, {"groupIds": ["a", "b"]}, "groupIds") == {"groupIds[1]": "ADD"}


def test_a_value_that_is_not_known_yet_is_a_change() -> None:
    assert _kinds({"scope": "x"}, {"scope": UNKNOWN}, "scope") == {"scope": "UPDATE_REPLACE"}


def test_the_spelling_of_a_location_is_no_difference() -> None:
    assert _kinds({"location": "West Europe"}, {"location": "westeurope"}, "location") == {}
    assert _kinds({"location": "westeurope"}, {"location": "northeurope"}, "location") == {
        "location": "UPDATE_REPLACE"
    }
