# SPDX-License-Identifier: Apache-2.0
"""A whole local cloud: starting, stopping, dying, and what a command in it sees."""

import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from localcloud.azure.records import CUT_OFF, Fault, Resource
from localcloud.azure.store import Store
from localcloud.cloud import CloudFailed, Endpoints, LocalCloud, supervisor_lock, supervisor_pid
from localcloud.kube.gateway import through
from localcloud.kube.leftovers import etcd_data
from localcloud.kube.watching import client

pytestmark = pytest.mark.cluster


@pytest.fixture
def cloud(local_cloud: LocalCloud) -> LocalCloud:
    """A running cloud; a test that ends it starts it again."""
    return local_cloud


def processes_of(state: Path) -> set[int]:
    """All processes whose command line names the state folder or its data in memory."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
        except OSError:  # it has ended
            continue
        if any(str(path).encode() in command for path in (state, etcd_data(state))):
            found.add(int(folder.name))
    return found


def test_the_endpoints_answer_with_certificates_of_the_one_authority(cloud: LocalCloud) -> None:
    endpoints = cloud.endpoints
    assert {"default", "kube-system"} <= {
        each.metadata.name for each in client(endpoints.kubeconfig).list(Namespace) if each.metadata
    }
    context = ssl.create_default_context(cafile=str(endpoints.ca))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    with pytest.raises(urllib.error.HTTPError) as refusal:
        opener.open(f"{endpoints.arm}/subscriptions?api-version=2022-12-01")
    assert refusal.value.code == 401, "a verified connection, and no token"


def test_pyroscope_is_ready_on_its_own_address_and_usual_port(cloud: LocalCloud) -> None:
    assert cloud.endpoints.pyroscope.startswith("http://127.")
    assert cloud.endpoints.pyroscope.endswith(":4040")
    with urllib.request.urlopen(f"{cloud.endpoints.pyroscope}/ready") as answer:
        assert answer.status == 200


def test_a_second_start_leaves_the_running_cloud_as_it_is(cloud: LocalCloud) -> None:
    before = cloud.endpoints
    LocalCloud(cloud.state).start()
    assert cloud.endpoints == before


def test_a_second_supervisor_is_refused(cloud: LocalCloud) -> None:
    with pytest.raises(CloudFailed, match=r"runs in .* already"), supervisor_lock(cloud.state):
        pass


def test_a_command_gets_nothing_that_leads_to_a_real_cloud_or_stack(
    cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {
        "AZURE_CLIENT_SECRET": "x",
        "ARM_CLIENT_ID": "x",
        "PULUMI_ACCESS_TOKEN": "x",
        "KUBECONFIG": "/real",
    }
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    environment = cloud.environment()
    assert not {"AZURE_CLIENT_SECRET", "ARM_CLIENT_ID", "PULUMI_ACCESS_TOKEN"} & set(environment)
    assert environment["KUBECONFIG"] == str(cloud.endpoints.kubeconfig)
    assert environment["PULUMI_BACKEND_URL"] == f"file://{cloud.state}/pulumi-state"
    assert environment["HOME"] == os.environ["HOME"], "everything else is the caller's"


def test_run_gives_the_command_the_environment_and_its_exit_code(cloud: LocalCloud) -> None:
    command = ["sh", "-c", "echo $GPUHEAP_ARM_ENDPOINT; exit 7"]
    done = localcloud("run", "--state", str(cloud.state), "--", *command)
    assert (done.stdout.strip(), done.returncode) == (cloud.endpoints.arm, 7)


def test_env_can_be_evaluated_by_a_shell(cloud: LocalCloud) -> None:
    printed = localcloud("env", "--state", str(cloud.state)).stdout
    done = subprocess.run(
        ["sh", "-c", f"{printed}\necho $IDENTITY_HEADER"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == cloud.endpoints.identity_header


def test_status_names_every_part_with_its_process_and_address(cloud: LocalCloud) -> None:
    done = localcloud("status", "--state", str(cloud.state))
    assert done.returncode == 0, done.stdout
    rows = [line.split("  ") for line in done.stdout.partition("\n\n")[0].splitlines()]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows[1:]}
    assert {cells[name][0] for name in cells} == {"running"}
    assert cells["azure, grafana"] == ["running", str(cloud.endpoints.supervisor_pid), cloud.endpoints.arm]
    for program in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        command = Path(f"/proc/{cells[program][1]}/cmdline").read_bytes()
        assert f"\0{program}\0".encode() in command


def test_kubectl_works_without_being_installed(cloud: LocalCloud) -> None:
    done = localcloud("kubectl", "--state", str(cloud.state), "get", "namespaces", "-o", "name")
    assert "namespace/kube-system" in done.stdout.splitlines(), done.stderr


def test_the_api_server_follows_fault_rules_for_whoever_goes_through_its_gateway(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    faulty = tmp_path / "kubeconfig"
    faulty.write_text(through(cloud.endpoints.kubeconfig.read_text(), cloud.endpoints.arm))
    kubernetes = client(faulty)
    made = ConfigMap(metadata=ObjectMeta(name="one", namespace="default"), data={"words": "ä" * 100})
    store = Store(cloud.state / "store.db")
    rule = Fault(method="POST", path="^/kubernetes/api/v1/.*/configmaps$", status=409, code="Conflict")
    store.add_fault(rule)
    store.add_fault(replace(rule, status=500, code="InternalError", after=True))
    Client(KubeConfig.from_file(faulty).get(), trust_env=False, dry_run=True).create(made)
    with pytest.raises(ApiError) as refused:
        kubernetes.create(made)
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    with pytest.raises(ApiError) as lost:
        kubernetes.create(made)
    assert lost.value.status.code == 500
    assert kubernetes.get(ConfigMap, "one", namespace="default").data == made.data, "it was made all the same"
    with pytest.raises(ApiError) as twice:
        kubernetes.create(made)
    assert twice.value.status.reason == "AlreadyExists", "the API server's own answer"
    store.add_fault(replace(rule, method="DELETE", path="/configmaps/one$", status=CUT_OFF, after=True))
    with pytest.raises(httpx2.RemoteProtocolError):
        kubernetes.delete(ConfigMap, "one", namespace="default")
    with pytest.raises(ApiError) as gone:
        kubernetes.delete(ConfigMap, "one", namespace="default")
    assert gone.value.status.code == 404
    store.close()


def test_a_watch_through_the_gateway_tells_of_what_happens_after_it_began(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    faulty = tmp_path / "kubeconfig"
    faulty.write_text(through(cloud.endpoints.kubeconfig.read_text(), cloud.endpoints.arm))
    changes = client(faulty).watch(Namespace)
    for _ in client(cloud.endpoints.kubeconfig).list(Namespace):
        next(changes)
    client(cloud.endpoints.kubeconfig).create(Namespace(metadata=ObjectMeta(name="later")))
    verb, namespace = next(changes)
    assert (verb, namespace.metadata and namespace.metadata.name) == ("ADDED", "later")


def test_two_more_clouds_start_at_once_beside_it_and_know_nothing_of_each_other(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    others = [LocalCloud(tmp_path / name) for name in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        try:
            list(pool.map(LocalCloud.start, others))
            addresses = [(each.endpoints.arm, each.endpoints.pyroscope) for each in (cloud, *others)]
            assert len(set(addresses)) == 3
            client(others[0].endpoints.kubeconfig).create(Namespace(metadata=ObjectMeta(name="only-here")))
            for each in (cloud, others[1]):
                names = [
                    one.metadata.name
                    for one in client(each.endpoints.kubeconfig).list(Namespace)
                    if one.metadata
                ]
                assert "only-here" not in names
        finally:
            list(pool.map(LocalCloud.stop, others))
    assert cloud.running
    assert not any(processes_of(each.state) for each in others)


def test_a_killed_supervisor_leaves_no_process_and_the_next_start_is_a_new_cloud(
    cloud: LocalCloud, waiting: Callable[..., Any]
) -> None:
    pid = cloud.endpoints.supervisor_pid
    assert pid == supervisor_pid(cloud.state)
    assert len(processes_of(cloud.state)) >= 5, "supervisor and four programs"
    store = Store(cloud.state / "store.db")
    store.put_resource(Resource(id="/subscriptions/s/resourceGroups/old", token="test"), actor="test")
    store.close()
    os.kill(pid, signal.SIGKILL)
    # The supervisor itself stays as a zombie, without command line, until the cloud object looks after it.
    waiting("all processes gone", lambda: not processes_of(cloud.state))
    waiting("its lock free", lambda: not cloud.running)
    with pytest.raises(CloudFailed, match="no local cloud runs"):
        cloud.environment()
    cloud.start()
    assert cloud.endpoints.supervisor_pid != pid
    store = Store(cloud.state / "store.db")
    assert store.resources() == [], "its cluster is gone, so what described it is gone too"
    store.close()
    assert list(client(cloud.endpoints.kubeconfig).list(ConfigMap, namespace="default"))


def test_stopping_is_quick_and_leaves_nothing_but_logs_and_records(
    cloud: LocalCloud, waiting: Callable[..., Any]
) -> None:
    cloud.stop()
    assert not processes_of(cloud.state)
    assert not etcd_data(cloud.state).exists()
    left = {path.name for path in cloud.state.iterdir()}
    assert not {"cloud.json", "kubeconfig", "control-plane"} & left
    assert (cloud.state / "logs" / "kube-apiserver.log").stat().st_size > 0
    done = localcloud("status", "--state", str(cloud.state))
    assert done.returncode == 1
    assert "no local cloud runs" in done.stderr
    cloud.start()


def test_a_part_that_ends_takes_the_cloud_down_and_is_named_in_the_log(
    cloud: LocalCloud, waiting: Callable[..., Any]
) -> None:
    (etcd,) = [
        pid for pid in processes_of(cloud.state) if b"\0etcd\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(etcd, signal.SIGKILL)
    waiting("all processes gone", lambda: not processes_of(cloud.state))
    assert "etcd ended with -9" in (cloud.state / "logs" / "supervisor.log").read_text()
    cloud.start()


def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    with pytest.raises(CloudFailed, match=r"supervisor ended with 1[\s\S]*make setup"):
        LocalCloud(tmp_path / "state").start()
    assert not processes_of(tmp_path / "state")


def test_endpoints_survive_their_file(tmp_path: Path) -> None:
    endpoints = Endpoints(
        kubeconfig=tmp_path / "kubeconfig",
        ca=tmp_path / "ca.crt",
        arm="https://127.0.0.1:1",
        identity="http://127.0.0.1:2/identity",
        identity_header="secret",
        pyroscope="http://127.1.2.3:4040",
        supervisor_pid=7,
    )
    endpoints.write(tmp_path / "cloud.json")
    assert Endpoints.read(tmp_path / "cloud.json") == endpoints
    assert (tmp_path / "cloud.json").stat().st_mode & 0o077 == 0


def localcloud(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localcloud", *arguments]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'agent'}"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
