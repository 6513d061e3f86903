# SPDX-License-Identifier: Apache-2.0
import pytest

from localcloud.azure.input_check import problems
from localcloud.azure.records import Json
from localcloud.azure.resource_types import resource_type
from localcloud.plugin.values import UNKNOWN

CLUSTER: Json = {
    "resourceGroupName": "rg",
    "resourceName": "aks",
    "sku": {"name": "Base", "tier": "Standard"},
    "agentPoolProfiles": [{"name": "system", "mode": "System", "count": 3.0, "vmSize": "Standard_D4s_v5"}],
    "azureMonitorProfile": {"metrics": {"enabled": True}},
    "tags": {"team": "gpu"},
}


def _found(change: Json) -> dict[str, str]:
    declared = resource_type("azure-native:containerservice:ManagedCluster").inputs
    return {problem.path: problem.reason for problem in problems({**CLUSTER, **change}, declared)}


def test_good_inputs_have_no_problem() -> None:
    assert _found({}) == {}


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        (
            {"dnsPrefx": "x"},
            "dnsPrefx",
            ["no property 'dnsPrefx'", "did you mean 'dnsPrefix'", "fqdnSubdomain"],
        ),
        ({"resourceGroupName": None}, "resourceGroupName", ["missing required property 'resourceGroupName'"]),
        ({"sku": {"name": "Bse"}}, "sku.name", ["one of Base, Automatic", "'Bse'"]),
        ({"enableRBAC": "yes"}, "enableRBAC", ["type boolean", "'yes'"]),
        ({"dnsPrefix": 7}, "dnsPrefix", ["type string", "7"]),
        ({"tags": {"a": 1}}, 'tags["a"]', ["type string", "1"]),
        ({"tags": ["a"]}, "tags", ["a map", "a list"]),
        ({"sku": "Base"}, "sku", ["an object", "'Base'"]),
        ({"agentPoolProfiles": {}}, "agentPoolProfiles", ["a list", "an object"]),
        (
            {"agentPoolProfiles": [{"name": "a", "count": 1.5}]},
            "agentPoolProfiles[0].count",
            ["integer", "1.5"],
        ),
        (
            {"agentPoolProfiles": [{"name": "a", "count": True}]},
            "agentPoolProfiles[0].count",
            ["integer", "True"],
        ),
        (
            {"agentPoolProfiles": [{"vmSize": "s"}]},
            "agentPoolProfiles[0].name",
            ["missing required property"],
        ),
        ({"agentPoolProfiles": [{"name": "a", "gpu": 1}]}, "agentPoolProfiles[0].gpu", ["no property 'gpu'"]),
    ],
)
def test_a_problem_names_the_path_what_was_given_and_what_is_allowed(
    change: Json, path: str, words: list[str]
) -> None:
    found = _found(change)
    assert list(found) == [path]
    for word in words:
        assert word in found[path]


def test_what_a_preview_does_not_know_fits_everywhere() -> None:
    assert (
        _found({"sku": UNKNOWN, "enableRBAC": UNKNOWN, "resourceGroupName": UNKNOWN, "tags": {"a": UNKNOWN}})
        == {}
    )


def test_every_problem_is_reported_at_once() -> None:
    assert len(_found({"nonsense": 1, "enableRBAC": "x", "sku": {"tier": "Gold"}})) == 3
