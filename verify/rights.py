# SPDX-License-Identifier: Apache-2.0
"""The rights that the checks need, and no more: what an identity that only verifies is given.

`python -m verify --rights kubernetes` and `--rights azure` print them as what kubectl and az take. Grafana's part is
its role Admin, since no lesser one may read data sources.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import yaml

NAME: Final = "gpuheap-verify"
SUBJECT: Final = "<object id of the identity>"
DEVICE_PLUGINS: Final = "gpu-device-plugins"
"""The namespace of the stack's own device plugins, in whose pods drivers are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Some verbs on one kind of object, of all names or of one."""

    group: str
    resource: str
    verb: str
    name: str | None = None

    def manifest(self) -> dict[str, Any]:
        rule: dict[str, Any] = {
            "apiGroups": [self.group],
            "resources": [self.resource],
            "verbs": [self.verb],
        }
        return rule if self.name is None else {**rule, "resourceNames": [self.name]}


CLUSTER: Final = (
    Rule(group="", resource="nodes", verb="list"),
    # In every namespace: device plugins of others may be anywhere.
    Rule(group="", resource="pods", verb="list"),
    Rule(group="", resource="services", verb="get", name="pyroscope"),
    Rule(group="apps", resource="daemonsets", verb="get", name="gpuheap-agent"),
)
DRIVER: Final = (
    # kubectl looks at the pod before it runs a command in it.
    Rule(group="", resource="pods", verb="get"),
    Rule(group="", resource="pods/exec", verb="create"),
    # A client that asks over WebSocket makes a GET; since Kubernetes 1.35 it needs `create` beside this verb.
    Rule(group="", resource="pods/exec", verb="get"),
)
"""To ask the drivers, in the namespace of the stack's device plugins alone. Without them, that check is skipped."""

ACTIONS: Final = (
    "Microsoft.AlertsManagement/prometheusRuleGroups/read",
    "Microsoft.Dashboard/grafana/managedPrivateEndpoints/read",
    "Microsoft.KubernetesConfiguration/extensions/read",
    "Microsoft.Network/privateEndpoints/read",
    "Microsoft.Network/privateLinkServices/read",
)
"""At Resource Manager, of the resources of the stack."""


def kubernetes(subject: str = SUBJECT) -> str:
    """Roles and their bindings, as `kubectl apply -f -` takes them. On AKS with Entra a user's name, and that of a
    service principal, is its object id.
    """
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": subject}
    return yaml.safe_dump_all(
        [
            _role("ClusterRole", CLUSTER),
            _binding("ClusterRole", user),
            _role("Role", DRIVER),
            _binding("Role", user),
        ],
        sort_keys=False,
    )


def azure(scope: str = "/subscriptions/<subscription>/resourceGroups/<group>") -> str:
    """A role, as `az role definition create --role-definition @file` takes it."""
    return json.dumps(
        {
            "Name": NAME,
            "Description": "Read what the checks of a gpuheap stack look at.",
            "Actions": list(ACTIONS),
            "AssignableScopes": [scope],
        },
        indent=2,
    )


def _role(kind: str, rules: tuple[Rule, ...]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": _metadata(kind),
        "rules": [rule.manifest() for rule in rules],
    }


def _binding(kind: str, subject: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(kind),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
        "subjects": [subject],
    }


def _metadata(kind: str) -> dict[str, str]:
    return {"name": NAME, **({"namespace": DEVICE_PLUGINS} if kind == "Role" else {})}
