# SPDX-License-Identifier: Apache-2.0
"""Azure's words for what has become of a private endpoint connection."""

from typing import Final

APPROVED: Final = "Approved"
PENDING: Final = "Pending"
DISCONNECTED: Final = "Disconnected"
REJECTED: Final = "Rejected"
