# SPDX-License-Identifier: Apache-2.0
"""How creations fail, and which fails how: fault rules for every type of Azure and every kind of Kubernetes.

The ways are dealt out by type, and moved on by a turn: as many turns as ways make the matrix of all types and all ways.
One more turn has the one way that leaves the engine in the dark and alive, for all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from localcloud.azure.records import CUT_OFF, UNANSWERED, Fault
from localcloud.engine import CHECKOUT

AZURE: Final[Mapping[str, Mapping[str, Any]]] = {
    "TooManyRequests": {"status": 429, "times": 4},
    "Conflict": {"status": 409},
    "InternalServerError": {"status": 500, "times": 4},
    "RequestTimeout": {"status": 408, "times": 4},
    "QuotaExceeded": {"status": 403},
    "AuthorizationFailed": {"status": 403},
    "OperationFailed": {"status": 409, "after": True},
    "KilledBefore": {"status": UNANSWERED},
    "KilledAfter": {"status": UNANSWERED, "after": True},
}
"""By the code: azure-native repeats 408, 429 and 500 three times, so those must last longer to be seen."""

KUBERNETES: Final[Mapping[str, Mapping[str, Any]]] = {
    "TooManyRequests": {"status": 429},
    "Conflict": {"status": 409},
    "InternalError": {"status": 500},
    "Timeout": {"status": 504},
    "Forbidden": {"status": 403},
    "ServiceUnavailable": {"status": 503, "after": True},
    "KilledBefore": {"status": UNANSWERED},
    "KilledAfter": {"status": UNANSWERED, "after": True},
}
"""By the reason. `Forbidden` is a quota, or a role that has not spread. The last but two: the answer is lost."""

LOST_TURN: Final = max(len(AZURE), len(KUBERNETES))
"""The turn in which each creation is made, and no answer arrives."""

LOST: Final[Mapping[str, Any]] = {"status": CUT_OFF, "after": True, "times": 4}

TYPES: Final = (
    "resourceGroups",
    "roleAssignments",
    "activityLogAlerts",
    "subnets",
    "managedClusters",
    "managedPrivateEndpoints",
    "extensions",
    "userAssignedIdentities",
    "virtualNetworks",
    "dataCollectionEndpoints",
    "agentPools",
    "accounts",
    "dataCollectionRules",
    "grafana",
    "dataCollectionRuleAssociations",
    "prometheusRuleGroups",
    "maintenanceConfigurations",
    "deploymentSafeguards",
    "storageAccounts",
    "containers",
    "federatedIdentityCredentials",
    "privateEndpoints",
    "privateDnsZoneGroups",
    "privateDnsZones",
    "virtualNetworkLinks",
    "actionGroups",
)
"""What the stacks make in Azure. The order is by which ways meet in one try; each turn moves them on."""

KINDS: Final = (
    "namespaces",
    "networkpolicies",
    "serviceaccounts",
    "services",
    "daemonsets",
    "validatingadmissionpolicies",
    "resourcequotas",
    "limitranges",
    "jobs",
    "validatingadmissionpolicybindings",
    "configmaps",
    "secrets",
    "deployments",
    "nodepools",
    "aksnodeclasses",
    "storageclasses",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "statefulsets",
    "persistentvolumeclaims",
    "priorityclasses",
    "poddisruptionbudgets",
)
"""What they, and the charts that they install, make in Kubernetes."""

GRAFANA_AND_APPROVAL: Final = (
    Fault(method="*", path="^/grafana/", status=403, code="Forbidden", times=2, each=True),
    Fault(
        method="PUT", path="/privateEndpointConnections/", status=403, code="AuthorizationFailed", each=True
    ),
    Fault(
        method="POST", path="/refreshManagedPrivateEndpoints$", status=429, code="TooManyRequests", each=True
    ),
    *(
        Fault(method=method, path=path, status=CUT_OFF, code="AnswerLost", each=True, after=True)
        for method, path in (("POST", "^/grafana/"), ("PUT", "/privateEndpointConnections/"))
    ),
)
"""What the dynamic providers wait for, and nobody sees: roles that have not spread, a server that is busy, an answer
that does not arrive.
"""


def configuration(stack: str) -> dict[str, Any]:
    """That of the example stack, destroyable; `prod` with the parts, too, that none of them has."""
    values: dict[str, Any] = yaml.safe_load((CHECKOUT / f"Pulumi.{stack}.yaml").read_text())
    config = values["config"]
    config["gpuheap:cluster"]["protect"] = False
    if stack == "prod":
        small = {
            name: {"cpu": "50m", "memoryGib": 0.25} for name in ("ingester", "store-gateway", "compactor")
        }
        config["gpuheap:pyroscope"] |= {
            "size": "microservices",
            "storage": {"accountName": "gpuheapprofiles"},
            "components": small,
        }
        config["gpuheap:grafana"] |= {"publicAccess": False, "privateAccess": {}}
        config["gpuheap:alerts"] = {**config.get("gpuheap:alerts", {}), "emails": ["oncall@example.com"]}
    return values


def rules(turn: int) -> Iterator[Fault]:
    """For the creation of each resource and object by itself: it fails once, or what its way says."""
    for kind, (code, how) in _dealt(TYPES, AZURE, turn):
        yield Fault(
            method="PUT", path=f"/{kind}/[^/]+$", code=code, message=words(kind, code), each=True, **how
        )
    for kind, (code, how) in _dealt(KINDS, KUBERNETES, turn):
        # The program applies objects by name (PATCH), Helm creates them in their collection; `gadget` is AKS's.
        for method, path in (("PATCH", f"{kind}/(?!gadget$)[^/]+$"), ("POST", f"namespaces/[^/]+/{kind}$")):
            yield Fault(
                method=method,
                path=f"^/kubernetes/.*/{path}",
                code=code,
                message=words(kind, code),
                each=True,
                **{**how, "times": 1},
            )
    yield from GRAFANA_AND_APPROVAL


def words(kind: str, code: str) -> str:
    """What the server says."""
    return f"{code}: {kind} cannot be made now"


def shown(rule: Fault) -> str:
    """What the user sees of it."""
    return "EOF" if rule.status == CUT_OFF else rule.message


def _dealt(
    kinds: Iterable[str], ways: Mapping[str, Mapping[str, Any]], turn: int
) -> Iterator[tuple[str, tuple[str, Mapping[str, Any]]]]:
    items = list(ways.items()) if turn < LOST_TURN else [("AnswerLost", LOST)]
    for number, kind in enumerate(kinds):
        yield kind, items[(number + turn) % len(items)]
