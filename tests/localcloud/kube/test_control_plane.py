# SPDX-License-Identifier: Apache-2.0
"""The control plane as a client sees it, and what is left when it stops."""

import os
from pathlib import Path

import pytest
import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec, ResourceRequirements
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod

from localcloud.kube.component import ComponentFailed
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.leftovers import etcd_data
from localcloud.kube.watching import client


def test_the_kubeconfig_works_as_a_text_without_any_other_file(control_plane: ControlPlane) -> None:
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    assert "certificate-authority" not in content["clusters"][0]["cluster"], (
        "a path, which a text cannot bring along"
    )
    list(Client(KubeConfig.from_dict(content).get()).list(Node))


def test_a_client_with_a_wrong_token_is_refused(control_plane: ControlPlane) -> None:
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    content["users"][0]["user"]["token"] = "0" * 32
    with pytest.raises(ApiError) as refusal:
        list(Client(KubeConfig.from_dict(content).get()).list(Node))
    assert refusal.value.status.code == 401


def test_the_kubeconfig_can_be_read_by_its_owner_only(control_plane: ControlPlane) -> None:
    assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_a_program_that_ends_at_once_is_named_with_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$1: no such luck"\nexit 3\n')
    program.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    with pytest.raises(ComponentFailed, match=r"etcd ended with 3[\s\S]*etcd: no such luck"):
        ControlPlane(program, state).start()
    assert not etcd_data(state).exists()


def test_a_port_that_someone_else_took_meanwhile_is_exchanged_for_another(tmp_path: Path) -> None:
    program = tmp_path / "program"
    calls = tmp_path / "calls"
    program.write_text(
        f"""#!/bin/sh
[ "$1" = etcd ] || exec sleep 60
echo "$@" >> {calls}
echo "listen tcp 127.0.0.1:1: bind: address already in use"
exit 1
"""
    )
    program.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    with pytest.raises(ComponentFailed, match="address already in use"):
        ControlPlane(program, state).start()
    flags = [line.split() for line in calls.read_text().splitlines()]
    clients = {next(flag for flag in each if flag.startswith("--listen-client-urls")) for each in flags}
    assert len(flags) == 3
    assert len(clients) == 3, "each attempt looks for ports anew"


def gpu_pod() -> Pod:
    resources = ResourceRequirements(limits={"nvidia.com/gpu": "1"})
    container = Container(name="main", image="example.com/training:1", resources=resources)
    return Pod(
        metadata=ObjectMeta(name="asks-for-a-gpu", namespace="default"), spec=PodSpec(containers=[container])
    )


def gpu_tolerations(control_plane: ControlPlane) -> list[str | None]:
    """The keys of a GPU pod's own tolerations, after admission."""
    admitted = client(control_plane.kubeconfig).create(gpu_pod(), dry_run=True)
    assert admitted.spec
    keys = [toleration.key for toleration in admitted.spec.tolerations or []]
    return [key for key in keys if not (key or "").startswith("node.kubernetes.io/")]


@pytest.mark.cluster
def test_the_api_server_gives_gpu_pods_their_toleration(control_plane: ControlPlane) -> None:
    assert gpu_tolerations(control_plane) == ["nvidia.com/gpu"]


@pytest.mark.cluster
def test_a_control_plane_can_be_had_without_that_and_leaves_no_process_and_no_data(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    other = ControlPlane(control_plane.executable, tmp_path, extended_resource_toleration=False)
    other.start()
    assert gpu_tolerations(other) == []
    processes = [component.pid for component in other.components]
    assert etcd_data(tmp_path).exists()
    other.stop()
    assert len(processes) == 4
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert not etcd_data(tmp_path).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "ca.key", "logs"]
