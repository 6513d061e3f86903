# SPDX-License-Identifier: Apache-2.0
"""What the local cloud and the tests run on, found on this machine or built from pinned sources.

Owns versions, the per-user cache and set-up (`python3 -m localcloud.toolchain`). Standard library only: it runs before
anything is installed. `resolve` never builds; it says what is missing.
"""

from localcloud.toolchain.errors import NotSetUp, SetupFailed
from localcloud.toolchain.home import pulumi_home
from localcloud.toolchain.tools import Tools, resolve

__all__ = ["NotSetUp", "SetupFailed", "Tools", "pulumi_home", "resolve"]
