# SPDX-License-Identifier: Apache-2.0
"""How commands are run in pods: by kubectl, with a credential that nobody else can read and that does not stay."""

import stat
from pathlib import Path
from typing import Any

import pytest

from verify.live import OutputsUnavailable, _Kubectl, stack_outputs
from verify.model import CheckFailed, NothingToCheck

KUBECONFIG: dict[str, Any] = {"kind": "Config", "users": [{"name": "u", "user": {"token": "secret-token"}}]}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that shows its arguments, and keeps its configuration file for the test to see."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncp -p "$KUBECONFIG" "$(dirname "$0")/seen"\necho "$@"\ntest "$4" != broken\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def test_without_the_engine_it_is_said_how_a_stack_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        OutputsUnavailable, match=r"pulumi is not on PATH.*localcloud run -- make verify STACK=dev"
    ):
        stack_outputs("dev")


def test_a_command_is_run_in_its_container(kubectl: Path, tmp_path: Path) -> None:
    printed = _Kubectl(KUBECONFIG, tmp_path).run("kube-system", "plugin", "main", ["nvidia-smi", "-L"])
    assert printed == "exec -n kube-system plugin -c main -- nvidia-smi -L\n"


def test_the_credential_is_on_no_command_line_and_for_its_owner_alone(kubectl: Path, tmp_path: Path) -> None:
    printed = _Kubectl(KUBECONFIG, tmp_path).run("kube-system", "plugin", "main", ["true"])
    assert "secret-token" not in printed
    seen = kubectl.with_name("seen")
    assert "secret-token" in seen.read_text()
    assert stat.S_IMODE(seen.stat().st_mode) == 0o600


def test_a_command_that_fails_says_what_it_printed(kubectl: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CheckFailed, match=r"nvidia-smi in pod broken ended with 1: exec -n kube-system broken"
    ):
        _Kubectl(KUBECONFIG, tmp_path).run("kube-system", "broken", "main", ["nvidia-smi"])


@pytest.mark.parametrize(
    "told", ["Error from server (Forbidden): pods is forbidden", "no preferred addresses found"]
)
def test_where_no_command_may_be_run_nothing_is_checked(kubectl: Path, tmp_path: Path, told: str) -> None:
    kubectl.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit 1\n")
    with pytest.raises(NothingToCheck, match="no command can be run in pods from here"):
        _Kubectl(KUBECONFIG, tmp_path).run("kube-system", "plugin", "main", ["nvidia-smi"])


def test_without_kubectl_there_is_nothing_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NothingToCheck, match="kubectl is not on PATH"):
        _Kubectl(KUBECONFIG, tmp_path).run("kube-system", "plugin", "main", ["true"])
