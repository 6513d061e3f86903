# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' quantities, as far as the configuration has them: which of two is the larger."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from .base import refuse

_QUANTITY: Final = re.compile(r"([0-9.]+)(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_UNITS: Final[Mapping[str | None, Decimal]] = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGT", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGT", 1)},
}


def amount(quantity: str) -> Decimal:
    """The number that a quantity stands for. Its form was checked before."""
    matched = _QUANTITY.fullmatch(quantity)
    assert matched
    return Decimal(matched[1]) * _UNITS[matched[2]]


def check_memory(request: str, limit: str) -> None:
    """Refuses a container that asks for more than it may have, as Kubernetes would, only later."""
    if amount(request) > amount(limit):
        raise refuse(
            "a container cannot ask for more memory than it may have",
            under=("memoryRequest",),
            given=f"{request}, with memoryLimit {limit}",
            allowed="at most memoryLimit",
            examples=[limit],
        )
