# SPDX-License-Identifier: Apache-2.0
"""The rules of placement for what a Pulumi program declares: the API server's, told before anything is made.

The API server's, in CEL, are made by `components/placement_rules.py`; the texts are the same. Here nothing is added by
ExtendedResourceToleration: a pod must hold its toleration itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from components.gpu_vendors import GPU_VENDORS, GpuVendor, Taint
from components.placement import exempt_namespaces
from components.placement_rules import CRON_TEMPLATE, OWNERS
from components.settings.placement import TAINT

PATHS: Final = {owner.kind: owner.pod_specs[0] for owner in OWNERS}
CRON_JOB: Final = "CronJob"
assert PATHS[CRON_JOB] == CRON_TEMPLATE


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What the rules ask of one."""

    containers: Sequence[Mapping[str, Any]]
    """Init containers among them."""
    tolerations: Sequence[Mapping[str, Any]]
    node: str

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "PodSpec":
        return cls(
            containers=[*_list(spec.get("containers")), *_list(spec.get("initContainers"))],
            tolerations=_list(spec.get("tolerations")),
            node=str(spec.get("nodeName") or ""),
        )

    @property
    def names(self) -> list[str]:
        return [str(each["name"]) for each in self.containers]

    def asking(self, vendor: GpuVendor) -> list[str]:
        """The containers that ask for GPUs of the vendor, each with what it asks for."""
        return [
            f"{each['name']} ({', '.join(_gpus(each, vendor))})"
            for each in self.containers
            if any(_count(quantity) > 0 for quantity in _gpus(each, vendor).values())
        ]

    def asks_for_nothing(self, vendor: GpuVendor) -> bool:
        """Whether a container asks for 0 GPUs."""
        return any(
            _count(quantity) == 0 for each in self.containers for quantity in _gpus(each, vendor).values()
        )

    def tolerates(self, taint: Taint) -> bool:
        """By a toleration of the taint's own key."""
        return any(_tolerates(each, taint) for each in self.tolerations)

    def tolerates_anything(self, taint: Taint) -> bool:
        return any(
            not each.get("key") and each.get("effect") in (None, "", taint.effect)
            for each in self.tolerations
        )


def vendors_with(taints: Mapping[str, str]) -> list[GpuVendor]:
    """The vendors, with other taints of their nodes, by name, in the form `key=value:effect`. Raises ValueError."""
    if unknown := taints.keys() - {vendor.name for vendor in GPU_VENDORS}:
        raise ValueError(f"taints: {', '.join(sorted(unknown))} is no vendor; nvidia and amd are")
    return [
        replace(vendor, taint=_taint(taints[vendor.name])) if vendor.name in taints else vendor
        for vendor in GPU_VENDORS
    ]


def _taint(text: str) -> Taint:
    parts = TAINT.fullmatch(text)
    if parts is None:
        raise ValueError(f"taints: {text!r} is no taint that keeps pods away; write key=value:NoSchedule")
    return Taint(key=parts["key"], value=parts["value"] or "", effect=parts["effect"])


def problems(
    resource_type: str,
    inputs: Mapping[str, Any],
    *,
    vendors: Sequence[GpuVendor] = GPU_VENDORS,
    exempt: Sequence[str] = (),
) -> Iterator[str]:
    """What is wrong with the pods that a resource is or makes; nothing for resources that make none."""
    kind = resource_type.rpartition(":")[2]
    if not resource_type.startswith("kubernetes:") or kind not in PATHS:
        return
    if _at(inputs, "metadata.namespace") in exempt_namespaces(exempt):
        return
    found = _at(inputs, PATHS[kind])
    if isinstance(found, Mapping):
        yield from _problems(kind, PodSpec.of(found), vendors)


def _problems(kind: str, pod: PodSpec, vendors: Sequence[GpuVendor]) -> Iterator[str]:
    where = PATHS[kind]
    serves_nodes = kind == "DaemonSet"
    listed = " and ".join(str(vendor.taint) for vendor in vendors)
    if not serves_nodes and any(pod.tolerates_anything(vendor.taint) for vendor in vendors):
        yield (
            f"a toleration without a key tolerates every taint, also {listed} of the GPU nodes: "
            f"{_containers(pod.names)}. In {where}.tolerations write the keys that are meant; for a pod with a "
            f"GPU: {' or '.join(_toleration(vendor.taint) for vendor in vendors)}"
        )
    if not serves_nodes and pod.node and not any(pod.asking(vendor) for vendor in vendors):
        yield (
            f"the pod names its node, which passes by the scheduler and so by the taint {listed} of the GPU "
            f"nodes: {_containers(pod.names)}. In {where} write instead of nodeName: nodeSelector: "
            f"{{kubernetes.io/hostname: {pod.node}}}"
        )
    for vendor in vendors:
        taint, asking = vendor.taint, pod.asking(vendor)
        if asking and not pod.tolerates(taint) and not pod.tolerates_anything(taint):
            yield (
                f"{_containers(asking)} asks for a GPU but the pod does not tolerate the taint {taint} of the "
                f"GPU nodes, where alone it could run. Add to {where}: tolerations: [{_toleration(taint)}]"
            )
        # Where vendors share a taint, it is tolerated for the GPUs of any of them.
        entitled = any(pod.asking(each) for each in vendors if each.taint.key == taint.key)
        if not serves_nodes and not entitled and pod.tolerates(taint):
            zero = " (a quantity of 0 is no GPU)" if pod.asks_for_nothing(vendor) else ""
            yield (
                f"the pod tolerates the taint {taint} of the GPU nodes but no container asks for one: "
                f"{_containers(pod.names)}{zero}. Add to the one that computes in {where}.containers: "
                f"resources: {{limits: {{{vendor.whole}: 1}}}}; or remove the toleration"
            )


def _toleration(taint: Taint) -> str:
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"


def _gpus(container: Mapping[str, Any], vendor: GpuVendor) -> dict[str, Any]:
    """The vendor's resources among a container's limits and requests."""
    resources = container.get("resources") or {}
    named = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: quantity for name, quantity in named.items() if vendor.owns(name)}


def _count(quantity: object) -> float:
    """Devices come in whole numbers; the API server refuses the rest."""
    try:
        return float(str(quantity))
    except ValueError:
        return 1


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("key") != taint.key or toleration.get("effect") not in (None, "", taint.effect):
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and (toleration.get("value") or "") == taint.value)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value or () if isinstance(each, Mapping)]


def _containers(names: Sequence[str]) -> str:
    return f"container{'s' if len(names) > 1 else ''} {', '.join(names)}"
