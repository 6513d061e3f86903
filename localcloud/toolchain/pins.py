# SPDX-License-Identifier: Apache-2.0
"""The versions this checkout is pinned to, read from the files that pin them."""

import re
from functools import cache
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = Path(__file__).resolve().parent
REQUIREMENTS: Final = CHECKOUT / "requirements.txt"

OLDEST_PULUMI: Final = (3, 200)
"""A user's own engine must be this new: older ones do not know calls that the SDK makes."""


@cache
def provider_version(name: str) -> str:
    """The plugin version that the SDK of a provider, `azure-native` for example, asks the engine for."""
    return requirement(f"pulumi-{name}")


@cache
def requirement(name: str) -> str:
    """The exact version of a package in requirements.txt."""
    pattern = re.compile(rf"^{re.sub('[-_]', '[-_]', name)}==(\S+)", re.MULTILINE)
    match = pattern.search(REQUIREMENTS.read_text())
    if match is None:
        raise LookupError(f"{REQUIREMENTS.name} has no line `{name}==VERSION`")
    return match[1]


def module_version(module_folder: Path, module: str) -> str:
    """The version of a Go module in the go.mod of `module_folder`, without the `v`."""
    match = re.search(
        rf"^\s*(?:require )?{re.escape(module)} v(\S+)", (module_folder / "go.mod").read_text(), re.MULTILINE
    )
    if match is None:
        raise LookupError(f"{module_folder.name}/go.mod does not require {module}")
    return match[1]
