# SPDX-License-Identifier: Apache-2.0
"""The part of a file's unwind rules that the kernel side can follow: frames found from two registers.

Pure. In compiled code nearly all are such: the CFA is a distance from the stack or the frame pointer, the return
address lies right below it, and the caller's frame pointer is the same or lies at a distance.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from .frame_rules import Kind, Rules

_BP: Final = 6
_SP: Final = 7
_RETURN_PLACE: Final = -8
_NARROW: Final = range(-(1 << 15), 1 << 15)
_WIDE: Final = range(-(1 << 31), 1 << 31)


class Base(Enum):
    SP = auto()
    BP = auto()
    ROOT = auto()
    """There is no caller."""


@dataclass(frozen=True, slots=True)
class SimpleRule:
    """`cfa`: distance from the base. `saved_bp`: of the caller's frame pointer from the CFA; 0: it is the same."""

    base: Base
    cfa: int = 0
    saved_bp: int = 0


def simple_rule(rules: Rules) -> SimpleRule | None:
    """None for a frame that is not simple."""
    for number, kind, _, _ in rules.others:
        if number == rules.return_register and kind is Kind.UNDEFINED:
            return SimpleRule(Base.ROOT)
    base = {_SP: Base.SP, _BP: Base.BP}.get(rules.cfa_register)
    saved = dict(rules.saved)
    if (
        base is None
        or rules.is_signal_frame
        or rules.cfa_expression is not None
        or saved.get(rules.return_register) != _RETURN_PLACE
        or any(number in (_BP, _SP) for number, *_ in rules.others)
        or _SP in saved
    ):
        return None
    saved_bp = saved.get(_BP, 0)
    if rules.cfa_offset not in _WIDE or saved_bp not in _NARROW:
        return None
    return SimpleRule(base, rules.cfa_offset, saved_bp)
