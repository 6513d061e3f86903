# SPDX-License-Identifier: Apache-2.0
"""The same object under other kernels: what was counted by hand. Nothing is traced on this one."""

from typing import Any

import pytest

from tests.kernels import truth

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(1500)]


def test_another_kernel_gives_what_was_counted_by_hand(there: dict[str, Any]) -> None:
    assert there.get("error") is None
    assert there["totals"] == truth.COUNTED_BY_HAND
    assert truth.by_functions(there["stacks"]) == truth.CALLED
    assert there["failures"] == truth.OUT_OF_MEMORY
    assert there["losses"] == {}, "nothing else runs there, and nothing was lost"
