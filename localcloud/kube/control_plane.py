# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

Its data live as long as it runs. Owns the flags and the order of starting; what acts as nodes is elsewhere.
"""

import base64
import json
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from localcloud.kube.certificates import CertificateAuthority, make_signing_key, write_private
from localcloud.kube.component import Component, ComponentFailed
from localcloud.kube.leftovers import clear, etcd_data

READY_SECONDS: Final = 180.0
START_ATTEMPTS: Final = 3
POLL_SECONDS: Final = 0.05
SERVICE_RANGE: Final = "10.96.0.0/16"
API_SERVICE_ADDRESS: Final = "10.96.0.1"
"""The first address of the range, which the API server takes for the Service `kubernetes`."""

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ADMISSION: Final = ("NodeRestriction", "PodSecurity", "ResourceQuota")
EXTENDED_RESOURCE_TOLERATION: Final = "ExtendedResourceToleration"
ADMIN: Final = "admin"
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
GROUPS: Final = {ADMIN: "system:masters", CONTROLLER_MANAGER: "", SCHEDULER: ""}


def _is_published(_port: int) -> None:
    """The loopback network is everybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where the programs run: on this machine's loopback network, unless a node has one of its own.

    `enter` is what to put before a command so that it runs in the network, `address` where others in it find the API
    server, which listens at `bind`, and `publish` makes a port of its loopback network one of ours.
    """

    enter: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    bind: str = "127.0.0.1"
    publish: Callable[[int], None] = _is_published


class ControlPlane:
    """The control plane of the state folder `state`, run by `executable`.

    Starting must be done by a thread that lives as long as it is to run: the programs die with that thread.
    `extended_resource_toleration`: whether the API server has that admission plug-in, which gives a pod that asks
    for `nvidia.com/gpu` a toleration of this key before any policy sees it. Clusters differ in it. `users` are further
    users that the API server knows, with their groups. With an `audit_policy` it writes what that asks for into
    `audit_log`.
    """

    def __init__(
        self,
        executable: Path,
        state: Path,
        *,
        extended_resource_toleration: bool = True,
        network: Network | None = None,
        users: Mapping[str, str] | None = None,
        audit_policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.kubeconfig = state / "kubeconfig"
        self.authority = CertificateAuthority.in_folder(state)
        self.components: list[Component] = []
        self.executable = executable
        self._admission = (
            (*ADMISSION, EXTENDED_RESOURCE_TOLERATION) if extended_resource_toleration else ADMISSION
        )
        self._network = network or Network()
        self._groups = {**GROUPS, **(users or {})}
        self.audit_log = state / "logs" / "audit.log"
        self._audit_policy = audit_policy
        self._state = state
        self._folder = state / "control-plane"
        self._logs = state / "logs"
        self._data = etcd_data(state)
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._choose_ports()

    def start(self, progress: Callable[[str], object] = str) -> None:
        """Start all programs and return when pods can be made.

        Raises ComponentFailed, with nothing left running.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once(progress)
            except ComponentFailed as error:
                # Somebody else took a port between our look and the program's: another local cloud, perhaps.
                if attempt == START_ATTEMPTS or "address already in use" not in str(error):
                    raise
                self._choose_ports()
            else:
                return

    def _start_once(self, progress: Callable[[str], object]) -> None:
        clear(self._state)
        for folder in (self._folder, self._data):
            folder.mkdir(mode=0o700, parents=True)
        self._logs.mkdir(exist_ok=True)
        try:
            self._start(progress)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all programs and remove their data. Does nothing when it is stopped."""
        for component in reversed(self.components):
            component.kill()
        for component in self.components:
            component.wait()
        self.components.clear()
        clear(self._state)

    @property
    def port(self) -> int:
        """The API server's, on the loopback network."""
        return self._api_port

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._api_port}"

    def check(self) -> None:
        """Raise ComponentFailed if one of the programs has ended."""
        for component in self.components:
            component.check()

    def _choose_ports(self) -> None:
        self._etcd_port, self._peer_port, self._api_port, self._manager_port, self._scheduler_port = (
            _free_ports(5)
        )

    def _start(self, progress: Callable[[str], object]) -> None:
        self._write_identities()
        if self._audit_policy:
            (self._folder / "audit-policy.json").write_text(json.dumps(self._audit_policy))
        progress("etcd and kube-apiserver")
        self._spawn("etcd", self._etcd_flags())
        self._network.publish(self._api_port)
        api_server = self._spawn("kube-apiserver", self._api_server_flags())
        self._wait(api_server, "/readyz")
        self._write_kubeconfig(ADMIN, self.kubeconfig)
        progress("kube-controller-manager and kube-scheduler")
        manager = self._spawn("kube-controller-manager", self._controller_manager_flags())
        self._spawn("kube-scheduler", self._scheduler_flags())
        # The last thing that a pod needs.
        self._wait(manager, "/api/v1/namespaces/default/serviceaccounts/default")

    def _spawn(self, name: str, flags: Sequence[str]) -> Component:
        command = [*self._network.enter, str(self.executable), name, *flags]
        component = Component(name, command, folder=self._folder, logs=self._logs)
        self.components.append(component)
        return component

    def _wait(self, component: Component, path: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        context = ssl.create_default_context(cafile=str(self.authority.certificate_path))
        request = urllib.request.Request(  # noqa: S310 - always https
            self.url + path, headers={"Authorization": f"Bearer {self._tokens[ADMIN]}"}
        )
        # A proxy that the environment names is not for the loopback.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        while True:
            self.check()
            try:
                with opener.open(request, timeout=5):
                    return
            except (OSError, urllib.error.HTTPError) as error:
                if time.monotonic() > deadline:
                    raise component.failure(f"gave no {path} in {READY_SECONDS:.0f} s ({error})") from error
            time.sleep(POLL_SECONDS)

    def _write_identities(self) -> None:
        names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        addresses = [API_SERVICE_ADDRESS, self._network.address]
        self.authority.issue(self._folder, "kube-apiserver", dns_names=names, addresses=addresses)
        make_signing_key(self._folder / "service-accounts.key", self._folder / "service-accounts.pub")
        rows = [f'{self._tokens[user]},{user},{user},"{groups}"\n' for user, groups in self._groups.items()]
        write_private(self._folder / "tokens.csv", "".join(rows).encode())
        for user in self._groups:
            if user != ADMIN:  # whose file says that the API server is there
                self._write_kubeconfig(user, self.kubeconfig_of(user))

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of a user, there from the start on."""
        if user == ADMIN:
            return self.kubeconfig
        return self._folder / f"{user.removeprefix('system:').replace(':', '-')}.kubeconfig"

    def _write_kubeconfig(self, user: str, path: Path) -> None:
        # Everything inside: it is also handed out as text, as AKS does.
        authority = base64.b64encode(self.authority.certificate_path.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "local", "cluster": {"server": self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        write_private(path, yaml.safe_dump(config, sort_keys=False).encode())

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            "--name=local",
            f"--data-dir={self._data}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
        ]

    def _api_server_flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._api_port}",
            f"--bind-address={self._network.bind}",
            f"--advertise-address={self._network.address}",
            "--kubelet-preferred-address-types=InternalIP",
            # It would refuse the loopback as an address of the Service `kubernetes`.
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={self._folder / 'kube-apiserver.crt'}",
            f"--tls-private-key-file={self._folder / 'kube-apiserver.key'}",
            f"--client-ca-file={self.authority.certificate_path}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(self._admission)}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={self._folder / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={self._folder / 'service-accounts.key'}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            "--profiling=false",
            *self._audit_flags(),
        ]

    def _audit_flags(self) -> list[str]:
        if not self._audit_policy:
            return []
        policy = self._folder / "audit-policy.json"
        # Blocking: who has an answer finds its entry in the log.
        return [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            *self._client_flags(CONTROLLER_MANAGER),
            f"--secure-port={self._manager_port}",
            f"--service-account-private-key-file={self._folder / 'service-accounts.key'}",
            f"--root-ca-file={self.authority.certificate_path}",
            f"--cluster-signing-cert-file={self.authority.certificate_path}",
            f"--cluster-signing-key-file={self.authority.key_path}",
            "--use-service-account-credentials=true",
            # Nodes must not be lost because a busy machine renewed a lease late.
            "--node-monitor-grace-period=1h",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [*self._client_flags(SCHEDULER), f"--secure-port={self._scheduler_port}"]

    def _client_flags(self, user: str) -> list[str]:
        kubeconfig = self.kubeconfig_of(user)
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--cert-dir={self._folder / user.removeprefix('system:')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--profiling=false",
        ]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
