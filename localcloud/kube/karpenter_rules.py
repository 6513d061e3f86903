# SPDX-License-Identifier: Apache-2.0
"""Which labels and taints a NodePool may carry: the CEL rules of Karpenter's own definitions, in our words."""

from typing import Any, Final

Rules = list[dict[str, Any]]

_WELL_KNOWN: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/arch",
    "kubernetes.io/os",
)
_KARPENTERS: Final = ("karpenter.sh/capacity-type",)
_SIZES: Final = tuple(
    f"karpenter.azure.com/sku-{what}"
    for what in (
        "name",
        "family",
        "version",
        "cpu",
        "memory",
        "networking-accelerated",
        "storage-premium-capable",
        "storage-ephemeralos-maxsize",
        "gpu-name",
        "gpu-manufacturer",
        "gpu-count",
    )
)
_SPOT: Final = "kubernetes.azure.com/scalesetpriority"


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _domain_rules(of: str, well_known: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of domain and rule, for the label that the CEL expression `of` names."""
    domain = f"{of}.split('/')[0]"
    return [
        (
            "kubernetes.io",
            f"{of} in {_list(well_known)} || !{domain}.endsWith('kubernetes.io')"
            + "".join(
                f" || {domain}.endsWith('{of_nodes}.kubernetes.io')"
                for of_nodes in ("node", "node-restriction")
            ),
        ),
        ("karpenter.sh", f"{of} in {_list(_KARPENTERS)} || !{domain}.endsWith('karpenter.sh')"),
        ("karpenter.azure.com", f"{of} in {_list(_SIZES)} || !{domain}.endsWith('karpenter.azure.com')"),
    ]


def _rule(message: str, rule: str) -> dict[str, str]:
    return {"message": message, "rule": rule}


LABEL_RULES: Final[Rules] = [
    _rule(f'label domain "{domain}" is restricted', f"self.all(x, {rule})")
    for domain, rule in _domain_rules("x", _WELL_KNOWN)
]
REQUIREMENT_RULES: Final[Rules] = [
    _rule(f'label domain "{domain}" is restricted', rule)
    for domain, rule in _domain_rules("self", (*_WELL_KNOWN, "node.kubernetes.io/instance-type"))
]
TAINT_RULES: Final[Rules] = [
    _rule(
        f'taint "{_SPOT}" must have value "spot" and effect "NoSchedule"',
        f"self.key != '{_SPOT}' || (has(self.value) && self.value == 'spot' && self.effect == 'NoSchedule')",
    )
]
TAINTS_RULES: Final[Rules] = [
    _rule(
        'taint domain "kubernetes.azure.com" is restricted',
        f"self.all(x, x.key == '{_SPOT}' || !x.key.split('/')[0].endsWith('kubernetes.azure.com'))",
    )
]
