# SPDX-License-Identifier: Apache-2.0
"""The rules of placement in CEL, as a ValidatingAdmissionPolicy holds them. Values in, texts out.

A pod that asks for a GPU tolerates the taint of the vendor's nodes, and one that tolerates the taint asks for a
GPU; nothing goes there by a toleration of everything, or past the scheduler. What creates pods later is held to the
same rules where its user sees the answer. Which cluster gets the policies, and whom they spare, is in `placement.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .gpu_vendors import GpuVendor, Taint

TEMPLATE: Final = "spec.template.spec"
CRON_TEMPLATE: Final = "spec.jobTemplate.spec.template.spec"

DAEMON_SET_CONTROLLERS: Final = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    # Where the controller manager runs all controllers under its own name.
    "system:kube-controller-manager",
)
LONGEST_LIST: Final = 400
"""Characters of container names in a message: the API server drops a message above 5 KiB."""

NAMES: Final = r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*"
CONTAINERS: Final = "(s.?containers.orValue([]) + s.?initContainers.orValue([]))"
"""Those of a pod spec that can ask for devices: the API server allows ephemeral ones none."""

TOLERATIONS: Final = "s.?tolerations.orValue([])"

PATH: Final = re.compile(rf"^{NAMES}((\[\]|\{{\}})\.{NAMES})?$")
"""Names joined by dots; one may be followed by `[]`, for each element of a list, or `{}`, for each value of a map."""
MANY: Final = re.compile(r"\[\]|\{\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A type whose objects make pods later."""

    group: str
    versions: tuple[str, ...]
    resource: str
    """The plural, as in `kubectl api-resources`."""
    kind: str
    pod_specs: tuple[str, ...]
    """Paths of its pod specs, in the form of `PATH`: `spec.workers[].template.spec`."""


OWNERS: Final = (
    Owner(group="", versions=("v1",), resource="pods", kind="Pod", pod_specs=("spec",)),
    Owner(
        group="",
        versions=("v1",),
        resource="replicationcontrollers",
        kind="ReplicationController",
        pod_specs=(TEMPLATE,),
    ),
    *(
        Owner(group="apps", versions=("v1",), resource=f"{kind.lower()}s", kind=kind, pod_specs=(TEMPLATE,))
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    ),
    Owner(group="batch", versions=("v1",), resource="jobs", kind="Job", pod_specs=(TEMPLATE,)),
    Owner(group="batch", versions=("v1",), resource="cronjobs", kind="CronJob", pod_specs=(CRON_TEMPLATE,)),
)

MATCH_CONDITIONS: Final = {
    "not-a-static-pod-of-a-node": "!('system:nodes' in request.userInfo.?groups.orValue([]))",
    # By who makes it, not by ownerReferences alone, which anybody can write.
    "not-a-pod-of-a-daemon-set": (
        f"!(request.userInfo.username in {list(DAEMON_SET_CONTROLLERS)} && "
        "dyn(object).metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet' && "
        "o.apiVersion.startsWith('apps/')))"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One validation: what must hold, and what the user reads where it does not."""

    expression: str
    message: str
    """Where `message_expression` fails or comes out too long."""
    message_expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one policy evaluates. Of the variables each is evaluated at most once for a request."""

    variables: Mapping[str, str]
    validations: Sequence[Rule]


def vendor_rules(vendor: GpuVendor, taints: Mapping[GpuVendor, Taint], owners: Sequence[Owner]) -> Rules:
    """A pod asks for the vendor's GPUs if and only if it tolerates the taint of the vendor's nodes."""
    taint = taints[vendor]
    # Where vendors share a taint, it is tolerated for the GPUs of any of them.
    behind = [prefix for each, its in taints.items() if its.key == taint.key for prefix in each.prefixes]
    asked = f"r, {_any_prefix(vendor.prefixes)}"
    names = f"c.?resources.?limits.orValue({{}}).filter({asked}).join(', ')"
    nothing = _resources(vendor.prefixes, "!quantity(string(m[r])).isGreaterThan(quantity('0'))")
    template = {
        "all": f"{CONTAINERS}.map(c, string(c.name))",
        "asking": f"{CONTAINERS}.filter(c, {_asks(vendor.prefixes)}).map(c, c.name + ' (' + {names} + ')')",
        "entitled": f"{CONTAINERS}.exists(c, {_asks(behind)})",
        "zero": f"{CONTAINERS}.exists(c, {nothing})",
        "named": f"{TOLERATIONS}.exists(t, {_tolerates(taint)})",
        "anything": f"{TOLERATIONS}.exists(t, {_tolerates_anything([taint])})",
    }
    toleration = _toleration(taint)
    return Rules(
        variables=_variables(owners, template),
        validations=(
            Rule(
                expression=_all("t.asking.size() == 0 || t.named || t.anything"),
                message=f"a container asks for a GPU but the pod does not tolerate {taint}",
                message_expression=_message(
                    _names("asking", "t.asking.size() > 0 && !t.named"),
                    f"' asks for a GPU but the pod does not tolerate the taint {taint} of the GPU nodes, where "
                    "alone it could run. Add to '",
                    "variables.where",
                    f"': tolerations: [{toleration}]'",
                ),
            ),
            Rule(
                expression=_all("variables.daemonSet || !t.named || t.entitled"),
                message=f"the pod tolerates {taint} but no container asks for a GPU",
                message_expression=_message(
                    f"'the pod tolerates the taint {taint} of the GPU nodes but no container asks for one: '",
                    _names("all", "t.named && !t.entitled"),
                    "(variables.templates.exists(t, t.zero) ? ' (a quantity of 0 is no GPU)' : '')",
                    "'. Add to the one that computes in '",
                    "variables.where",
                    f"'.containers: resources: {{limits: {{{vendor.whole}: 1}}}}; or remove the toleration'",
                ),
            ),
        ),
    )


def general_rules(taints: Mapping[GpuVendor, Taint], owners: Sequence[Owner]) -> Rules:
    """Nothing gets to GPU nodes of any vendor by a toleration of everything, or past the scheduler."""
    prefixes = [prefix for vendor in taints for prefix in vendor.prefixes]
    template = {
        "all": f"{CONTAINERS}.map(c, string(c.name))",
        "asking": f"{CONTAINERS}.exists(c, {_asks(prefixes)})",
        "anything": f"{TOLERATIONS}.exists(t, {_tolerates_anything(list(taints.values()))})",
        "node": "string(s.?nodeName.orValue(''))",
    }
    listed = " and ".join(map(str, taints.values()))
    tolerations = " or ".join(map(_toleration, taints.values()))
    return Rules(
        variables=_variables(owners, template),
        validations=(
            Rule(
                expression=_all("variables.daemonSet || !t.anything"),
                message=f"a toleration without a key tolerates every taint, also {listed}",
                message_expression=_message(
                    f"'a toleration without a key tolerates every taint, also {listed} of the GPU nodes: '",
                    _names("all", "t.anything"),
                    "'. In '",
                    "variables.where",
                    f"'.tolerations write the keys that are meant; for a pod with a GPU: {tolerations}'",
                ),
            ),
            Rule(
                expression=_all("variables.daemonSet || t.node == '' || t.asking"),
                message="the pod names its node, which passes by the scheduler and so by the nodes' taints",
                message_expression=_message(
                    "'the pod names its node, which passes by the scheduler and so by the taint "
                    f"{listed} of the GPU nodes: '",
                    _names("all", "t.node != '' && !t.asking"),
                    "'. In '",
                    "variables.where",
                    "' write instead of nodeName: nodeSelector: {kubernetes.io/hostname: '",
                    "variables.templates.filter(t, t.node != '')[0].node",
                    "'}'",
                ),
            ),
        ),
    )


def _variables(owners: Sequence[Owner], template: Mapping[str, str]) -> Mapping[str, str]:
    """`template`: what is known of the pod spec `s`, by name."""
    # dyn: values of one map are of one type otherwise.
    facts = ", ".join(f"'{name}': dyn({expression})" for name, expression in template.items())
    return {
        # Only what is new: an object that was there before the policy stays as free as it was.
        "specs": f"({_specs('dyn(object)', owners)}).filter(s, oldObject == null || "
        f"!(s in ({_specs('dyn(oldObject)', owners)})))",
        "where": _chosen(owners, "''", lambda owner: f"'{' or '.join(owner.pod_specs)}'"),
        "daemonSet": "request.kind.kind == 'DaemonSet' && request.kind.group == 'apps'",
        "templates": f"variables.specs.map(s, {{{facts}}})",
    }


def _asks(prefixes: Sequence[str]) -> str:
    return _resources(prefixes, "quantity(string(m[r])).isGreaterThan(quantity('0'))")


def _resources(prefixes: Sequence[str], test: str) -> str:
    """Whether a limit or a request `r` in the map `m` of the container `c` is a GPU, and passes `test`."""
    return (
        "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
        f".exists(m, m.exists(r, ({_any_prefix(prefixes)}) && {test}))"
    )


def _any_prefix(prefixes: Sequence[str]) -> str:
    return " || ".join(f"r.startsWith('{prefix}')" for prefix in prefixes)


def _toleration(taint: Taint) -> str:
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"


def _tolerates(taint: Taint) -> str:
    """As the scheduler decides: https://pkg.go.dev/k8s.io/api/core/v1#Toleration.ToleratesTaint"""
    return (
        f"t.?key.orValue('') == '{taint.key}' && t.?effect.orValue('') in ['', '{taint.effect}'] && "
        "(t.?operator.orValue('') == 'Exists' || "
        f"(t.?operator.orValue('') in ['', 'Equal'] && t.?value.orValue('') == '{taint.value}'))"
    )


def _tolerates_anything(taints: Sequence[Taint]) -> str:
    effects = ["", *sorted({taint.effect for taint in taints})]
    return f"t.?key.orValue('') == '' && t.?effect.orValue('') in {effects}"


def _all(test: str) -> str:
    return f"variables.templates.all(t, {test})"


def _names(of: str, where: str) -> str:
    """`container a` or `containers a, b, …`: of the first pod spec that breaks the rule."""
    names = f"variables.templates.filter(t, {where})[0].{of}"
    joined = f"{names}.join(', ')"
    cut = f"({joined}.size() > {LONGEST_LIST} ? {joined}.substring(0, {LONGEST_LIST}) + '…' : {joined})"
    return f"({names}.size() == 1 ? 'container ' : 'containers ') + {cut}"


def _message(*parts: str) -> str:
    return " + ".join(parts)


def _chosen(owners: Sequence[Owner], otherwise: str, value: Callable[[Owner], str]) -> str:
    """A conditional by the type of the object. `otherwise` is never reached: the policy matches these types only."""
    text = otherwise
    for owner in reversed(owners):
        test = f"request.kind.kind == '{owner.kind}' && request.kind.group == '{owner.group}'"
        text = f"{test} ? {value(owner)} : {text}"
    return text


def _specs(root: str, owners: Sequence[Owner]) -> str:
    """The pod specs in `root`, as a list."""
    return _chosen(owners, "[]", lambda owner: " + ".join(f"({_at(root, path)})" for path in owner.pod_specs))


def _at(root: str, path: str) -> str:
    """The values at `path` in `root`, as a list; what is absent is left out."""
    many = MANY.search(path)
    if many is None:
        return f"[?{_optional(root, path)}]"
    inner = path[many.end() :].lstrip(".")
    whole = f"{_optional(root, path[: many.start()])}.orValue({many.group()})"
    each = "x" if many.group() == "[]" else f"{whole}[x]"
    return f"{whole}.filter(x, {_optional(each, inner)}.hasValue()).map(x, {_optional(each, inner)}.value())"


def _optional(root: str, path: str) -> str:
    return f"{root}.?" + ".?".join(path.split("."))
