# SPDX-License-Identifier: Apache-2.0
"""The declared stack, without an engine; and small projects with one, without a cluster."""

from tests.components.conftest import dev, existing
from tests.localcloud.azure.conftest import state
from tests.localcloud.plugin.conftest import make_project

__all__ = ["dev", "existing", "make_project", "state"]
