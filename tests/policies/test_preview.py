# SPDX-License-Identifier: Apache-2.0
"""The pack in a real preview of a program that breaks each rule. That the stack passes is shown in tests/engine."""

import json
import re
from pathlib import Path

import pytest

from localcloud.engine import CHECKOUT
from tests.localcloud.plugin.conftest import MakeProject, Project

pytestmark = pytest.mark.engine

BREAKS_EACH_RULE = """
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import containerservice, resources

gpu = {"limits": {"nvidia.com/gpu": "1"}}
kubernetes.batch.v1.Job("train", metadata={"name": "train", "namespace": "shop"}, spec={"template": {"spec": {
    "restart_policy": "Never", "containers": [{"name": "train", "image": "i", "resources": gpu}]}}})
kubernetes.core.v1.Service("open", metadata={"name": "open", "namespace": "gadget"}, spec={
    "type": "LoadBalancer", "ports": [{"port": 4040}]})
kubernetes.core.v1.Service("link", metadata={"name": "link", "namespace": "shop", "annotations": {
    "service.beta.kubernetes.io/azure-pls-visibility": "*",
    "service.beta.kubernetes.io/azure-pls-auto-approval": "11111111-1111-1111-1111-111111111111",
    }}, spec={"type": "LoadBalancer", "ports": [{"port": 80}]})
labels = {"app": "agent"}
kubernetes.apps.v1.DaemonSet("agent", metadata={"name": "agent", "namespace": "gpuheap"}, spec={
    "selector": {"match_labels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [
    {"name": "agent", "image": "i", "security_context": {"privileged": True}}]}}})
group = resources.ResourceGroup("group", resource_group_name="group", location="westeurope", tags={"project": "x"})
containerservice.ManagedCluster("cluster", resource_group_name=group.name, resource_name_="cluster",
    location="westeurope", dns_prefix="x", identity={"type": "SystemAssigned"},
    tags={"project": "x", "environment": "prod"}, agent_pool_profiles=[
    {"name": "system", "mode": "System", "count": 1, "vm_size": "Standard_D4s_v5"}])
"""
REFUSALS = {
    ("gpu-placement", "train"),
    ("no-public-pyroscope", "open"),
    ("no-self-approving-link", "link"),
    ("no-privileged-agent", "agent"),
    ("tags", "group"),
    ("protected-cluster", "cluster"),
}
VIOLATION = re.compile(r"- \[mandatory\] +([\w-]+) +\(.*: ([\w-]+)\)")


@pytest.fixture
def project(make_project: MakeProject, state: Path) -> Project:
    """A program whose Kubernetes objects would be written into files: a preview of them needs no cluster."""
    project = make_project(BREAKS_EACH_RULE, options={"virtualenv": str(CHECKOUT / ".venv")})
    project.environment["GPUHEAP_LOCALCLOUD"] = str(state)
    project.succeed("config", "set", "kubernetes:renderYamlToDirectory", str(state / "rendered"))
    return project


def test_each_rule_is_told_at_the_preview(project: Project, tmp_path: Path) -> None:
    policy_config = tmp_path / "policies.json"
    policy_config.write_text(json.dumps({"gpu-placement": {"taints": {"nvidia": "sku=gpu:NoSchedule"}}}))
    pack = ["--policy-pack", str(CHECKOUT / "policies"), "--policy-pack-config", str(policy_config)]
    code, said = project.run("preview", *pack)
    assert code != 0
    assert set(VIOLATION.findall(said)) == REFUSALS, said
    assert "Add to spec.template.spec: tolerations: [{key: sku, operator: Exists" in said
