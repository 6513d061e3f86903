# SPDX-License-Identifier: Apache-2.0
"""The declared stack, without an engine."""

from tests.components.conftest import dev, existing

__all__ = ["dev", "existing"]
