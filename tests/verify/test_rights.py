# SPDX-License-Identifier: Apache-2.0
"""Verifying with the rights that are said to suffice, on a real API server, and with each of them taken away."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.testing
import yaml
from azure.core.credentials import AccessToken, TokenCredential
from lightkube import Client, KubeConfig
from lightkube.codecs import load_all_yaml
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, ServiceAccount, ServiceAccountToken
from lightkube.resources.rbac_authorization_v1 import ClusterRole

from components.device_plugins import NAMESPACE as DEVICE_PLUGINS
from localcloud.azure.knowledge import arm_type
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.watching import client
from localcloud.toolchain import resolve
from tests.verify.test_checks import CLOUD, OUTPUTS, _Http, _live, _Pods
from tests.waiting import wait_for
from verify import rights
from verify.__main__ import verify
from verify.checks import CHECKS, run
from verify.live import ARM_RIGHTS, _Reader
from verify.model import Live, MissingRight, Outcome, Result

GROUP = "/subscriptions/s/resourceGroups/rg/providers"
IDS = {
    "inspektorGadgetExtensionId": f"{GROUP}/Microsoft.ContainerService/managedClusters/c"
    "/providers/Microsoft.KubernetesConfiguration/extensions/inspektor-gadget",
    "privateLinkServiceId": f"{GROUP}/Microsoft.Network/privateLinkServices/pls",
    "managedPrivateEndpointId": f"{GROUP}/Microsoft.Dashboard/grafana/g/managedPrivateEndpoints/e",
    "grafanaPrivateEndpointId": f"{GROUP}/Microsoft.Network/privateEndpoints/e",
    "alertRuleGroupId": f"{GROUP}/Microsoft.AlertsManagement/prometheusRuleGroups/r",
}
# Which check fails for the lack of which rule, and how the API server calls what is missing.
MISSED = {
    "nodes": ("GPU nodes are tainted and offer their GPUs", 'cannot list resource "nodes"'),
    "pods": ("Pyroscope runs", 'cannot list resource "pods"'),
    "services": ("Pyroscope answers to its name in the cluster", 'cannot get resource "services"'),
    "daemonsets": ("Agent runs on every GPU node", 'cannot get resource "daemonsets" in API group "apps"'),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    control_plane = ControlPlane(resolve().control_plane, tmp_path_factory.mktemp("cluster"))
    control_plane.start()
    try:
        yield client(control_plane.kubeconfig)
    finally:
        control_plane.stop()


@pytest.fixture(scope="module")
def verifier(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A service account that has what `--rights kubernetes` prints, and nothing else."""
    cluster.create(Namespace(metadata=ObjectMeta(name=DEVICE_PLUGINS)))
    cluster.create(ServiceAccount(metadata=ObjectMeta(name="verifier", namespace="default")))
    for part in load_all_yaml(rights.kubernetes("system:serviceaccount:default:verifier")):
        cluster.create(part)
    asked = ServiceAccountToken(metadata=ObjectMeta(), spec=TokenRequestSpec(audiences=[]))
    answer = cluster.create(asked, "verifier", namespace="default")
    assert answer.status and answer.status.token
    return Client(_as(cluster, answer.status.token))


def _as(cluster: Client, token: str) -> Any:
    """The cluster's address and authority, with somebody else's token."""
    known: Any = cluster.config
    return KubeConfig.from_dict(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": _plain(known.cluster)}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    ).get()


def _plain(cluster: Any) -> dict[str, Any]:
    return {
        "server": cluster.server,
        "certificate-authority": cluster.certificate_auth,
        "certificate-authority-data": cluster.certificate_auth_data,
    }


def _results(kubernetes: Client) -> dict[str, Result]:
    live: Any = replace(_live(CLOUD), kubernetes=kubernetes)
    return {result.check.title: result for result in run(live, CHECKS)}


@pytest.mark.cluster
def test_with_the_printed_rights_nothing_is_refused(verifier: Client) -> None:
    # The cluster is empty: what the checks look for is not there, but they may look.
    refused = [result.seen for result in _results(verifier).values() if "not allowed" in result.seen]
    assert refused == []


@pytest.mark.cluster
@pytest.mark.parametrize("rule", rights.CLUSTER, ids=lambda rule: rule.resource)
def test_without_one_of_them_the_check_names_what_is_missing(
    rule: rights.Rule, cluster: Client, verifier: Client
) -> None:
    whole = cluster.get(ClusterRole, rights.NAME)
    less = copy.deepcopy(whole)
    less.rules = [one for one in whole.rules or () if one.resources != [rule.resource]]
    title, named = MISSED[rule.resource]
    cluster.replace(less)
    try:
        # The API server learns of a changed role a moment later.
        wait_for("the right is gone", lambda: "not allowed" in _results(verifier)[title].seen)
        result = _results(verifier)[title]
        assert result.outcome is Outcome.FAILED
        assert named in result.seen
        assert result.remedy and "--rights kubernetes" in result.remedy
    finally:
        whole.metadata.resourceVersion = None  # type: ignore[union-attr]
        cluster.replace(whole)


@pytest.mark.cluster
def test_with_another_token_than_the_clusters_own_it_is_said_so(cluster: Client) -> None:
    seen = _results(Client(_as(cluster, "no-token")))["Pyroscope runs"].seen
    assert "Unauthorized" in seen


def test_every_rule_is_one_that_a_check_needs() -> None:
    assert set(MISSED) == {rule.resource for rule in rights.CLUSTER}


def test_commands_are_run_where_the_stacks_device_plugins_are_and_nowhere_else() -> None:
    parts = list(yaml.safe_load_all(rights.kubernetes()))
    (role,) = [part for part in parts if part["kind"] == "Role"]
    assert role["metadata"]["namespace"] == DEVICE_PLUGINS == rights.DEVICE_PLUGINS
    (everywhere,) = [part for part in parts if part["kind"] == "ClusterRole"]
    assert not any("pods/exec" in rule["resources"] for rule in everywhere["rules"])
    assert {verb for rule in everywhere["rules"] for verb in rule["verbs"]} == {"get", "list"}


def test_the_azure_role_has_an_action_for_each_kind_that_is_read() -> None:
    read: list[str] = []

    class Recording(_Http):
        def get(self, path: str, api_version: str = "") -> Any:
            read.append(f"{arm_type(path)}/read")
            return super().get(path, api_version)

    live = Live(
        outputs={**OUTPUTS, **IDS},
        kubernetes=_live(CLOUD).kubernetes,
        pods=_Pods({}),
        arm=Recording({}),
        grafana=_Http(CLOUD["grafana"]),
    )
    run(live, CHECKS)
    assert sorted(set(read)) == list(rights.ACTIONS)
    role = json.loads(rights.azure("/subscriptions/s/resourceGroups/rg"))
    assert role["Actions"] == sorted(set(read))
    assert role["AssignableScopes"] == ["/subscriptions/s/resourceGroups/rg"]


def test_a_right_that_azure_misses_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "The client 'x' with object id 'y' does not have authorization to perform action "
        "'Microsoft.Network/privateLinkServices/read' over scope '/subscriptions/s/resourceGroups/rg'."
    )
    answer = httpx.Response(403, json={"error": {"code": "AuthorizationFailed", "message": told}})
    monkeypatch.setattr(httpx, "request", lambda *_, **__: answer)
    identity: Any = _Identity()
    with pytest.raises(MissingRight, match=re.escape(told)) as caught:
        _Reader("https://arm", identity, "scope", rights=ARM_RIGHTS).get("/x")
    assert "--rights azure" in caught.value.remedy


class _Identity(TokenCredential):
    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken("token", 0)


@pytest.mark.parametrize(("kind", "has"), [("kubernetes", "kind: ClusterRole"), ("azure", '"Actions"')])
def test_rights_are_printed_without_a_stack(kind: str, has: str) -> None:
    app = typer.Typer()
    app.command()(verify)
    printed = typer.testing.CliRunner().invoke(app, ["--rights", kind])
    assert printed.exit_code == 0
    assert has in printed.stdout


def test_rights_are_bound_to_whom_they_are_for() -> None:
    app = typer.Typer()
    app.command()(verify)
    printed = typer.testing.CliRunner().invoke(app, ["--rights", "kubernetes", "--for", "somebody"])
    bindings = [part for part in yaml.safe_load_all(printed.stdout) if part["kind"].endswith("Binding")]
    assert [one["subjects"][0]["name"] for one in bindings] == ["somebody", "somebody"]


@pytest.mark.parametrize("content", ["", "- a list", "kind: Config", "{"])
def test_what_is_no_kubeconfig_is_said_to_be_none(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    monkeypatch.setattr("verify.live.stack_outputs", lambda *_: {"clusterName": "c"})
    app = typer.Typer()
    app.command()(verify)
    printed = typer.testing.CliRunner().invoke(app, ["--stack", "dev", "--kubeconfig", str(file)])
    assert printed.exit_code == 2
    assert str(file) in printed.output.replace("\n", "")
