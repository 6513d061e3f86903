# SPDX-License-Identifier: Apache-2.0
"""Reads the state of a live stack: its outputs through the engine, the rest over HTTPS as whoever runs it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from azure.core.credentials import TokenCredential
from azure.core.exceptions import ClientAuthenticationError
from lightkube import Client, KubeConfig

from components.azure.credentials import GRAFANA_SCOPE, arm_endpoint, arm_scope, credential

from .model import CheckFailed, Live, MissingRight, NothingToCheck

TIMEOUT_SECONDS: Final = 30
NO_WAY: Final = ("(Forbidden)", "no preferred addresses found")
"""What kubectl prints when the right `pods/exec` is missing, and when a node is an API object alone."""


class OutputsUnavailable(Exception):
    """The stack's outputs cannot be read; the text is the engine's."""


ARM_RIGHTS: Final = (
    "python -m verify --rights azure prints the role; assign it on the stack's resource groups"
)
GRAFANA_RIGHTS: Final = (
    "assign the role Grafana Admin on the workspace: no lesser one may read data sources; without public access a "
    "workspace refuses everybody outside of its networks, whatever the role"
)


@contextmanager
def live(stack: str, directory: str = ".", *, kubeconfig_file: Path | None = None) -> Iterator[Live]:
    """The stack as it is now, its cluster by the stack's kubeconfig or another one.

    Raises OutputsUnavailable when the engine knows no such stack or has no outputs, or when that other file is none.
    """
    outputs = stack_outputs(stack, directory)
    identity = credential()
    kubeconfig = _kubeconfig(outputs, kubeconfig_file)
    with tempfile.TemporaryDirectory(prefix="gpuheap-verify-") as folder:
        yield Live(
            outputs=outputs,
            kubernetes=Client(KubeConfig.from_dict(kubeconfig).get()),
            pods=_Kubectl(kubeconfig, Path(folder)),
            arm=_Arm(_Reader(arm_endpoint(), identity, arm_scope(), rights=ARM_RIGHTS)),
            grafana=_Grafana(
                _Reader(outputs.get("grafanaUrl", ""), identity, GRAFANA_SCOPE, rights=GRAFANA_RIGHTS)
            ),
        )


def _kubeconfig(outputs: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    try:
        found = yaml.safe_load(outputs.get("kubeconfig", "") if file is None else file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OutputsUnavailable(
            f"{file or 'the kubeconfig of the stack'} cannot be read: {error}"
        ) from error
    if not isinstance(found, dict) or "clusters" not in found:
        raise OutputsUnavailable(
            f"{file or 'the output kubeconfig of the stack'} is no kubeconfig: it names no clusters"
        )
    return found


def stack_outputs(stack: str, directory: str = ".") -> dict[str, Any]:
    """All outputs, secrets in clear: they stay in this process."""
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        raise OutputsUnavailable(
            "pulumi is not on PATH, and the stack's outputs are read by it. For a stack on the local cloud: "
            f"python -m localcloud run -- make verify STACK={stack}"
        )
    command = [pulumi, "stack", "output", "--json", "--show-secrets", "--stack", stack]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutputsUnavailable(done.stderr.strip())
    outputs: dict[str, Any] = json.loads(done.stdout)
    if not outputs:
        raise OutputsUnavailable(f"stack {stack} has no outputs; run `pulumi up --stack {stack}` first")
    return outputs


class _Reader:
    """Requests with a bearer token."""

    def __init__(self, base_url: str, identity: TokenCredential, scope: str, *, rights: str) -> None:
        self._base_url, self._identity, self._scope = base_url.rstrip("/"), identity, scope
        self._rights = rights
        """How whoever verifies comes by the rights to read here."""

    def get(self, path: str, **query: str) -> dict[str, Any]:
        body: dict[str, Any] = self._send("GET", path, params=query).json()
        return body

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._send("POST", path, json=body).json()
        return answer

    def open(self, url: str) -> None:
        if not url.startswith(f"{self._base_url}/"):  # the token is for this server alone
            raise CheckFailed(f"{url} is no page of {self._base_url}")
        self._send("GET", url.removeprefix(self._base_url))

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            token = self._identity.get_token(self._scope).token
            answer = httpx.request(
                method,
                self._base_url + path,
                headers={"Authorization": f"Bearer {token}"},
                timeout=TIMEOUT_SECONDS,
                **content,
            )
        except ClientAuthenticationError as error:
            raise CheckFailed(f"no token for {self._scope}: {error.message}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CheckFailed(f"{self._base_url} cannot be reached: {error}") from error
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise MissingRight(f"{method} {path}: {_message(answer)}", remedy=self._rights)
        if answer.status_code != httpx.codes.OK:
            raise CheckFailed(f"{method} {path} answered {answer.status_code}: {answer.text[:200]}")
        return answer


def _message(answer: httpx.Response) -> str:
    """What a server says of a refusal: Resource Manager names the action in it."""
    try:
        body = answer.json()
    except ValueError:
        return answer.text[:500]
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]


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

    def query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._reader.post("/api/ds/query", body)

    def page(self, url: str) -> None:
        self._reader.open(url)


class _Kubectl:
    """`kubectl exec`: commands in pods need a protocol of which the Kubernetes client here knows nothing."""

    def __init__(self, kubeconfig: Mapping[str, Any], folder: Path) -> None:
        self._kubeconfig, self._file = kubeconfig, folder / "kubeconfig"

    def run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise NothingToCheck("kubectl is not on PATH, and commands in pods are run by it")
        if not self._file.exists():
            # For its owner alone, and gone with the folder: it is the cluster's credential.
            with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                yaml.safe_dump(self._kubeconfig, file)
        line = [kubectl, "exec", "-n", namespace, pod, "-c", container, "--", *command]
        try:
            done = subprocess.run(
                line,
                env={**os.environ, "KUBECONFIG": str(self._file)},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"{command[0]} in pod {pod} did not end within {TIMEOUT_SECONDS} s") from None
        if done.returncode:
            told = (done.stderr or done.stdout).strip()
            if any(reason in told for reason in NO_WAY):
                raise NothingToCheck(f"no command can be run in pods from here: {told[:200]}")
            raise CheckFailed(f"{command[0]} in pod {pod} ended with {done.returncode}: {told[:300]}")
        return done.stdout
