# SPDX-License-Identifier: Apache-2.0
"""The kinds that AKS Automatic brings for its pools: NodePool and AKSNodeClass, with the rules that Karpenter puts
on what a stack writes into them.

As in karpenter-provider-azure (pkg/apis/crds): which properties there are, their forms, and which labels and taints
belong to somebody else. Properties that this checkout has no use for are left out, and refused as unknown.
"""

import time
from typing import Any, Final

import httpx2
from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition

from localcloud.kube.karpenter_rules import LABEL_RULES, REQUIREMENT_RULES, TAINT_RULES, TAINTS_RULES

Schema = dict[str, Any]

NODE_POOL: Final = create_global_resource("karpenter.sh", "v1", "NodePool", "nodepools")
NODE_CLASS: Final = create_global_resource("karpenter.azure.com", "v1beta1", "AKSNodeClass", "aksnodeclasses")
KINDS: Final = (NODE_POOL, NODE_CLASS)
SERVED_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
DURATION: Final = r"^(([0-9]+(s|m|h))+|Never)$"
SUBNET_ID: Final = (
    r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$"
)


def install(kubernetes: Client) -> None:
    """Make the kinds known to the cluster, as they are in one with node auto-provisioning, and wait until they are
    served. Raises httpx2.HTTPStatusError when they are not in time.
    """
    for definition in DEFINITIONS:
        kubernetes.apply(definition, field_manager="aks", force=True)
    deadline = time.monotonic() + SERVED_SECONDS
    for kind in KINDS:
        while not _served(kubernetes, kind, last_try=time.monotonic() > deadline):
            time.sleep(POLL_SECONDS)


def remove(kubernetes: Client) -> None:
    """Take them away, and all objects of these kinds with them."""
    for definition in DEFINITIONS:
        assert definition.metadata
        try:
            kubernetes.delete(CustomResourceDefinition, str(definition.metadata.name))
        except ApiError as error:
            if error.status.code != 404:
                raise


def _served(kubernetes: Client, kind: Any, *, last_try: bool) -> bool:
    try:
        list(kubernetes.list(kind))
    except httpx2.HTTPStatusError as error:
        # Not found, as a page and not as a Status: not known yet. Too many requests: its storage is being prepared.
        if error.response.status_code not in (404, 429) or last_try:
            raise
        return False
    return True


def _object(properties: Schema, *required: str) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _map(**more: Any) -> Schema:
    return {"type": "object", "additionalProperties": _text(), **more}


_NODE_POOL_SPEC: Final = _object(
    {
        "template": _object(
            {
                "metadata": _object(
                    {
                        "labels": _map(maxProperties=100, **{"x-kubernetes-validations": LABEL_RULES}),
                        "annotations": _map(),
                    }
                ),
                "spec": _object(
                    {
                        "expireAfter": _text(default="720h", pattern=DURATION),
                        "terminationGracePeriod": _text(pattern=r"^([0-9]+(s|m|h))+$"),
                        "nodeClassRef": _object(
                            {
                                "group": _text(pattern="^[^/]+$"),
                                "kind": _text(minLength=1),
                                "name": _text(minLength=1),
                            },
                            "group",
                            "kind",
                            "name",
                        ),
                        "requirements": {
                            "type": "array",
                            "maxItems": 100,
                            "items": _object(
                                {
                                    "key": _text(
                                        maxLength=316, **{"x-kubernetes-validations": REQUIREMENT_RULES}
                                    ),
                                    "operator": _text(
                                        enum=["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
                                    ),
                                    "values": {"type": "array", "items": _text(), "maxItems": 200},
                                },
                                "key",
                                "operator",
                            ),
                            "x-kubernetes-validations": [
                                {
                                    "message": "requirements with operator 'In' must have a value defined",
                                    "rule": "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
                                }
                            ],
                        },
                        "taints": {
                            "type": "array",
                            "maxItems": 100,
                            "items": _object(
                                {
                                    "key": _text(minLength=1, maxLength=63),
                                    "value": _text(maxLength=63),
                                    "effect": _text(enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                                },
                                "key",
                                "effect",
                            )
                            | {"x-kubernetes-validations": TAINT_RULES},
                            "x-kubernetes-validations": TAINTS_RULES,
                        },
                    },
                    "nodeClassRef",
                    "requirements",
                ),
            },
            "spec",
        ),
        "disruption": _object(
            {
                "consolidateAfter": _text(pattern=DURATION),
                "consolidationPolicy": _text(
                    default="WhenEmptyOrUnderutilized", enum=["WhenEmpty", "WhenEmptyOrUnderutilized"]
                ),
                "budgets": {
                    "type": "array",
                    "default": [{"nodes": "10%"}],
                    "items": _object({"nodes": _text(pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$")}, "nodes"),
                },
            },
            "consolidateAfter",
        )
        | {"default": {"consolidateAfter": "0s"}},
        "limits": {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            },
        },
        "weight": {"type": "integer", "minimum": 1, "maximum": 100},
    },
    "template",
)

_NODE_CLASS_SPEC: Final = _object(
    {
        "vnetSubnetID": _text(pattern=SUBNET_ID),
        "osDiskSizeGB": {"type": "integer", "default": 128, "minimum": 30, "maximum": 2048},
        "imageFamily": _text(default="Ubuntu", enum=["Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux"]),
        "maxPods": {"type": "integer", "minimum": 10, "maximum": 250},
        "tags": _map(maxProperties=50),
    }
)


def _definition(group: str, version: str, kind: str, plural: str, spec: Schema) -> CustomResourceDefinition:
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition: CustomResourceDefinition = CustomResourceDefinition.from_dict(  # type: ignore[assignment]
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Cluster",
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": plural,
                    "singular": kind.lower(),
                },
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": _object({"spec": spec, "status": status}, "spec")},
                    }
                ],
            },
        }
    )
    return definition


DEFINITIONS: Final = (
    _definition("karpenter.sh", "v1", "NodePool", "nodepools", _NODE_POOL_SPEC),
    _definition("karpenter.azure.com", "v1beta1", "AKSNodeClass", "aksnodeclasses", _NODE_CLASS_SPEC),
)
