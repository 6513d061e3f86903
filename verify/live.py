# SPDX-License-Identifier: Apache-2.0
"""Reads the state of a live stack: its outputs through the engine, the rest over HTTPS as whoever runs it."""

import json
import subprocess
from typing import Any

import httpx
import yaml
from azure.core.credentials import TokenCredential
from azure.core.exceptions import ClientAuthenticationError
from lightkube import Client, KubeConfig

from components.azure.credentials import GRAFANA_SCOPE, arm_endpoint, arm_scope, credential

from .model import CheckFailed, Live

TIMEOUT_SECONDS = 30


class OutputsUnavailable(Exception):
    """The stack's outputs cannot be read; the text is the engine's."""


def live(stack: str, directory: str = ".") -> Live:
    """The stack as it is now. Raises OutputsUnavailable when the engine knows no such stack or has no outputs."""
    outputs = stack_outputs(stack, directory)
    identity = credential()
    arm = _Reader(arm_endpoint(), identity, arm_scope())
    grafana = _Reader(outputs.get("grafanaUrl", ""), identity, GRAFANA_SCOPE)
    kubeconfig = yaml.safe_load(outputs.get("kubeconfig", "{}"))
    return Live(
        outputs=outputs,
        kubernetes=Client(KubeConfig.from_dict(kubeconfig).get()),
        arm=_Arm(arm),
        grafana=_Grafana(grafana),
    )


def stack_outputs(stack: str, directory: str = ".") -> dict[str, str]:
    """All outputs, secrets in clear: they stay in this process."""
    command = ["pulumi", "stack", "output", "--json", "--show-secrets", "--stack", stack]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutputsUnavailable(done.stderr.strip())
    outputs: dict[str, str] = json.loads(done.stdout)
    if not outputs:
        raise OutputsUnavailable(f"stack {stack} has no outputs; run `pulumi up --stack {stack}` first")
    return outputs


class _Reader:
    """GET with a bearer token."""

    def __init__(self, base_url: str, identity: TokenCredential, scope: str) -> None:
        self._base_url, self._identity, self._scope = base_url.rstrip("/"), identity, scope

    def get(self, path: str, **query: str) -> dict[str, Any]:
        try:
            token = self._identity.get_token(self._scope).token
            answer = httpx.get(
                self._base_url + path,
                params=query,
                headers={"Authorization": f"Bearer {token}"},
                timeout=TIMEOUT_SECONDS,
            )
        except ClientAuthenticationError as error:
            raise CheckFailed(f"no token for {self._scope}: {error.message}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CheckFailed(f"{self._base_url} cannot be reached: {error}") from error
        if answer.status_code != httpx.codes.OK:
            raise CheckFailed(f"GET {path} answered {answer.status_code}: {answer.text[:200]}")
        body: dict[str, Any] = answer.json()
        return body


class _Arm:
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def get(self, resource_id: str, api_version: str) -> dict[str, Any]:
        return self._reader.get(resource_id, **{"api-version": api_version})


class _Grafana:
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def get(self, path: str) -> dict[str, Any]:
        return self._reader.get(f"/api/{path}")
