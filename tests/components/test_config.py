# SPDX-License-Identifier: Apache-2.0
"""What a stack's configuration may hold, and what a refusal says."""

from typing import Any

import pytest

from components.config import parse
from components.config_problems import ConfigError
from components.settings.cluster import NewCluster
from components.settings.grafana import NewGrafana
from tests.components.configs import ENOUGH, accepted, only_problem, refused


def test_a_gpu_size_and_an_image_are_all_that_must_be_said() -> None:
    config = accepted()
    assert isinstance(config.cluster, NewCluster) and config.cluster.name == "gpuheap-prod"
    assert isinstance(config.grafana, NewGrafana) and config.grafana.name == "gpuheap-prod"
    assert config.private_link.domain == "pyroscope.gpuheap-prod.internal"
    assert config.pyroscope.chart == "oci://ghcr.io/grafana/helm-charts/pyroscope"


def test_a_refusal_says_where_what_was_given_what_is_allowed_and_how_to_set_it() -> None:
    assert str(only_problem(gpuPools=[{"name": "gpu", "vmSize": "Standard_D4s_v5"}])).splitlines() == [
        "gpuheap:gpuPools[0].vmSize: this VM size has no GPU",
        "    given: Standard_D4s_v5",
        "    allowed: a size of the NC, ND, NG or NV series",
        "    fix: pulumi config set --path 'gpuheap:gpuPools[0].vmSize' Standard_NC24ads_A100_v4",
    ]


def test_an_unknown_top_level_key_names_its_nearest_neighbour() -> None:
    problem = only_problem(gpupools=[{"count": 2}])
    assert problem.path == "gpuheap:gpupools"
    assert problem.reason == "there is no such key; did you mean gpuheap:gpuPools?"
    assert problem.fix == "pulumi config rm --path 'gpuheap:gpupools'"


def test_an_unknown_key_deep_inside_names_its_nearest_neighbour() -> None:
    problem = only_problem(cluster={"systemPool": {"vmsize": "Standard_D4s_v5"}})
    assert problem.path == "gpuheap:cluster.systemPool.vmsize"
    assert "did you mean gpuheap:cluster.systemPool.vmSize?" in problem.reason
    assert problem.given == "Standard_D4s_v5"


def test_all_problems_are_told_at_once() -> None:
    pool = {"name": "gpu", "vmSize": "Standard_D2s_v5", "count": -1}
    problems = refused(gpuPools=[ENOUGH["gpuPools"][0], pool], tagz={})
    assert [problem.path for problem in problems] == [
        "gpuheap:tagz",
        "gpuheap:gpuPools[1].vmSize",
        "gpuheap:gpuPools[1].count",
    ]


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"cluster": {"name": "c" * 64}}, "gpuheap:cluster.name"),
        (
            {"gpuPools": [{"name": "thirteenchars", "vmSize": "Standard_NC6s_v3"}]},
            "gpuheap:gpuPools[0].name",
        ),
        ({"grafana": {"name": "g" * 31}}, "gpuheap:grafana.name"),
        ({"resourceGroup": "r" * 91}, "gpuheap:resourceGroup"),
        ({"privateLink": {"endpointName": "e" * 21}}, "gpuheap:privateLink.endpointName"),
    ],
)
def test_a_name_that_is_too_long_is_refused_with_its_length(keys: dict[str, Any], path: str) -> None:
    problem = only_problem(**keys)
    assert problem.path == path
    assert problem.given is not None and f"({len(problem.given)} characters)" in problem.reason


def test_the_longest_endpoint_name_is_accepted() -> None:
    assert accepted(privateLink={"endpointName": "e" * 20}).private_link.endpoint_name == "e" * 20


def test_an_endpoint_name_that_follows_from_a_long_stack_name_says_where_it_came_from() -> None:
    problem = only_problem("a-rather-long-stack")
    assert problem.path == "gpuheap:privateLink.endpointName"
    assert problem.given == "gpuheap-a-rather-long-stack (derived from the name of the stack)"
    assert problem.fix == "pulumi config set --path 'gpuheap:privateLink.endpointName' gpuheap-prod"


def test_a_new_cluster_and_an_existing_one_exclude_each_other() -> None:
    existing = {"name": "shared", "resourceGroup": "shared-rg"}
    problem = only_problem(cluster={"existing": existing, "systemPool": {"count": 1}})
    assert problem.path == "gpuheap:cluster.systemPool"
    assert problem.reason == "this key does not go with the others here"
    assert problem.fix == "pulumi config rm --path 'gpuheap:cluster.systemPool'"


def test_an_image_without_a_digest_is_refused() -> None:
    problem = only_problem(agent={"image": "ghcr.io/example/agent:latest"})
    assert problem.path == "gpuheap:agent.image"
    assert "digest" in problem.reason


def test_an_image_to_build_and_one_that_exists_exclude_each_other() -> None:
    problem = only_problem(
        agent={"image": "x@sha256:" + "0" * 64, "build": {"registry": "example.azurecr.io"}}
    )
    assert problem.path == "gpuheap:agent.image"


def test_what_must_be_set_is_asked_for_with_a_command_that_sets_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({}, stack="prod", location=None)
    assert [(problem.path, problem.reason) for problem in caught.value.problems] == [
        ("azure-native:location", "it must be set"),
        ("gpuheap:gpuPools[0].vmSize", "a new cluster needs GPU nodes"),
        ("gpuheap:agent", "it must be set"),
    ]
    assert [problem.fix for problem in caught.value.problems] == [
        "pulumi config set azure-native:location westeurope",
        "pulumi config set --path 'gpuheap:gpuPools[0].vmSize' Standard_NC24ads_A100_v4",
        "pulumi config set --path 'gpuheap:agent.build.registry' example.azurecr.io",
    ]


def test_a_value_where_a_group_of_keys_belongs_is_refused() -> None:
    problem = only_problem(cluster="gpuheap-prod")
    assert problem.path == "gpuheap:cluster"
    assert problem.reason == "this is a group of keys, not a single value"


def test_a_version_that_yaml_reads_as_a_number_is_refused_with_the_hint_to_quote_it() -> None:
    problem = only_problem(cluster={"kubernetesVersion": 1.3})
    assert problem.path == "gpuheap:cluster.kubernetesVersion"
    assert problem.allowed is not None and "in quotes" in problem.allowed


@pytest.mark.parametrize("stack", ["Prod_EU.2", "x", "UPPER"])
def test_every_stack_name_gives_names_that_azure_takes(stack: str) -> None:
    assert accepted(stack).name.removeprefix("gpuheap-") == stack.lower().replace("_", "-").replace(".", "-")
