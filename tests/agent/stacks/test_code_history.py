# SPDX-License-Identifier: Apache-2.0
"""When what was learnt of addresses is void: expected as a person says who knows what lies at each."""

import pytest

from gpuheap.stacks.code_history import CodeHistory
from gpuheap.stacks.memory_map import NoFile, Region


def code(begin: int, end: int, inode: int = 0, offset: int = 0) -> Region:
    """Memory of a file, or of none."""
    file = NoFile.GONE if inode else NoFile.ANONYMOUS
    return Region(begin << 12, end << 12, True, offset << 12, "08:01", inode, "", file)


@pytest.mark.parametrize(
    ("first", "then", "is_replaced"),
    [
        pytest.param([code(5, 9, 1)], [code(5, 9, 1)], False, id="nothing has changed"),
        pytest.param([code(5, 9, 1)], [], False, id="it has gone"),
        pytest.param([code(5, 9, 1)], [code(9, 12, 2)], False, id="another one lies beside it"),
        pytest.param([code(5, 9, 1)], [code(5, 9, 2)], True, id="another one is in its place"),
        pytest.param([code(5, 9, 1)], [code(8, 12, 2)], True, id="another one covers its end"),
        pytest.param([code(5, 9, 1)], [code(5, 7, 1), code(7, 9, 1, offset=2)], False, id="it is cut in two"),
        pytest.param([code(5, 9, 1)], [code(5, 9, 1, offset=2)], True, id="another part of it is there"),
        pytest.param([code(5, 9)], [code(4, 20)], False, id="memory without a file grows"),
        pytest.param([code(5, 9)], [code(5, 9, 1)], True, id="a file where there was none"),
        pytest.param([code(1, 99, 1)], [code(1, 3, 1), code(50, 51, 2)], True, id="one within what it had"),
    ],
)
def test_code_is_other_when_it_lies_where_other_code_was(
    first: list[Region], then: list[Region], is_replaced: bool
) -> None:
    history = CodeHistory()
    assert not history.replaced(first)
    assert history.replaced(then) is is_replaced


def test_what_has_gone_is_remembered_until_something_takes_its_place() -> None:
    history = CodeHistory()
    answers = [
        history.replaced(now) for now in ([code(5, 9, 1)], [], [code(5, 9, 1)], [], [code(5, 9, 2)], [])
    ]
    assert answers == [False, False, False, False, True, False]
    assert not history.replaced([code(5, 9, 2)]), "it is the same since then"
