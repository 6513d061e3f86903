# SPDX-License-Identifier: Apache-2.0
"""Lets a plugin import the SDK's gRPC messages without the SDK.

`import pulumi` takes longer than everything else that a small plugin does, and the messages need none of it. Only for
processes that never import the real `pulumi`: call it from a `__main__`, before anything else is imported.
"""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Final

PACKAGES: Final = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto", "pulumi.runtime.proto.codegen")


def install() -> None:
    """Put empty packages in the place of the SDK's own, so that only the modules asked for are run."""
    if "pulumi" in sys.modules:
        return
    spec = importlib.util.find_spec("pulumi")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"no Pulumi SDK for {sys.executable}: run `make setup`, and use .venv/bin/python"
        )
    root = Path(spec.submodule_search_locations[0])
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
