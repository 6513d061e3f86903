# SPDX-License-Identifier: Apache-2.0
"""Where the local cloud that a plugin belongs to keeps its state, and what it serves."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STATE_VARIABLE: Final = "GPUHEAP_LOCALCLOUD"
SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000001"
"""The subscription that a program gets that names none."""


class NotRunning(Exception):
    """There is no local cloud; the text says how to get one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The local cloud whose state is in the folder `state`."""

    state: Path

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Surroundings":
        state = environment.get(STATE_VARIABLE)
        if not state:
            raise NotRunning(
                f"{STATE_VARIABLE} is not set: start commands with `python -m localcloud run -- ...`"
            )
        return cls(state=Path(state))

    @property
    def store(self) -> Path:
        return self.state / "store.db"

    def arm(self) -> str:
        """The address of Resource Manager, and of the Grafana workspaces below it."""
        return self._endpoint("arm")

    def kubeconfig(self) -> Path:
        """The file with which the cluster is reached as its administrator."""
        return Path(self._endpoint("kubeconfig"))

    def _endpoint(self, name: str) -> str:
        file = self.state / "cloud.json"
        try:
            return str(json.loads(file.read_text())[name])
        except FileNotFoundError:
            raise NotRunning(
                f"there is no {file}: start the local cloud with `python -m localcloud up`"
            ) from None
