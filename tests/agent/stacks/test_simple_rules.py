# SPDX-License-Identifier: Apache-2.0
"""Which unwind rules the kernel side can follow. Expected: by the numbers of the System V ABI for x86-64."""

from typing import Any

import pytest

from gpuheap.stacks.frame_rules import Kind, Rules
from gpuheap.stacks.simple_rules import Base, SimpleRule, simple_rule

RBX, RBP, RSP, R10, RETURN = 3, 6, 7, 10, 16


def rules(**changes: Any) -> Rules:
    """Those behind `push %rbp; mov %rsp, %rbp`, changed."""
    values = {
        "cfa_register": RBP,
        "cfa_offset": 16,
        "cfa_expression": None,
        "saved": ((RBP, -16), (RETURN, -8)),
        "others": (),
        "return_register": RETURN,
        "is_signal_frame": False,
    }
    return Rules(**(values | changes))


def test_a_frame_by_the_frame_pointer_is_simple() -> None:
    assert simple_rule(rules()) == SimpleRule(Base.BP, 16, -16)


def test_a_frame_by_the_stack_pointer_keeps_the_frame_pointer_where_it_is_not_saved() -> None:
    found = simple_rule(rules(cfa_register=RSP, cfa_offset=48, saved=((RBX, -24), (RETURN, -8))))
    assert found == SimpleRule(Base.SP, 48)


def test_a_threads_root_is_simple() -> None:
    assert simple_rule(rules(others=((RETURN, Kind.UNDEFINED, 0, b""),))) == SimpleRule(Base.ROOT)


@pytest.mark.parametrize(
    "changes",
    [
        {"cfa_register": R10},
        {"cfa_expression": b"\x77\x08"},
        {"saved": ((RBP, -16), (RETURN, -32))},
        {"saved": ((RBP, -16),)},
        {"others": ((RBP, Kind.AT_EXPRESSION, 0, b"\x76\x00"),)},
        {"is_signal_frame": True},
        {"cfa_offset": 1 << 31},
        {"saved": ((RBP, -40_000), (RETURN, -8))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_all_others_are_left_to_the_agent(changes: dict[str, Any]) -> None:
    assert simple_rule(rules(**changes)) is None
