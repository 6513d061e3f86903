# SPDX-License-Identifier: Apache-2.0
"""One real node: opened before the control plane, which runs in its network, and started after it."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lightkube.resources.core_v1 import Node

from localcloud.kube.component import Component, ComponentFailed
from localcloud.kube.control_plane import (
    ADMIN,
    API_SERVICE_ADDRESS,
    SERVICE_RANGE,
    ControlPlane,
    Network,
)
from localcloud.kube.watching import client
from localcloud.node import cgroups, configuration, devices
from localcloud.node.images import PAUSE, Image, write_archive
from localcloud.node.namespaces import ADDRESS, Namespaces
from localcloud.node.relay import Relay
from localcloud.removal import remove_when_unused

START_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.05
GROUP: Final = "system:nodes"
POLICY_CHAIN: Final = "KUBE-ROUTER-FORWARD"
"""Where the policy engine's rules begin, for packets from pod to pod."""

REMOVE_SECONDS: Final = 10.0
"""Mounts in its folder end with the last process of the node."""


class RealNode:
    """A node of the name `name`, whose files are in the folder `node` of a state folder.

    `kube` is the executable with the kubelet in it, `packages` are those of `toolchain.node_packages`. Labels and
    taints (`key=value:Effect`) are what the kubelet registers with. Like the control plane's, its programs die with
    the thread that started them.
    """

    def __init__(
        self,
        state: Path,
        *,
        kube: Path,
        packages: Path,
        name: str = "real",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.user = f"system:node:{name}"
        self.namespaces = Namespaces(state / "node", packages)
        self.components: list[Component] = []
        self._folder = state / "node"
        self._logs = state / "logs"
        self._kube = kube
        self._packages = packages
        self._labels = dict(labels or {})
        self._taints = tuple(taints)
        self._group = cgroups.ControlGroup()
        self._relays: list[Relay] = []

    def open(self) -> Network:
        """Make the node's network, and say how the control plane is to run in it. Raises ComponentFailed."""
        cgroups.sweep()
        remove_when_unused(self._folder, REMOVE_SECONDS)
        self._logs.mkdir(parents=True, exist_ok=True)
        self.namespaces.open()
        return Network(
            enter=self.namespaces.entering(mounts=False),
            address=ADDRESS,
            bind="0.0.0.0",  # noqa: S104 - all interfaces of a network that only the node sees
            publish=self._publish,
        )

    @property
    def users(self) -> dict[str, str]:
        """Whom the API server must know for the node's sake."""
        return {self.user: GROUP}

    def start(self, control_plane: ControlPlane, images: Sequence[Image] = ()) -> None:
        """Start the runtime, the kubelet and the policy engine, and return when pods can run and are guarded.

        Raises ComponentFailed, with nothing of the node left running but its network.
        """
        try:
            self.start_runtime([Image(name=PAUSE, entrypoint=["/bin/sleep", "1000000000"]), *images])
            self._route_to_api_server(control_plane.port)
            self._start_kubelet(control_plane)
            self._wait_until_ready(control_plane)
            self._start_network_policies(control_plane)
        except BaseException:
            self._end_programs()
            raise

    def start_runtime(self, images: Sequence[Image]) -> None:
        """Start what runs containers, and nothing that asks for them. Raises ComponentFailed."""
        self._group.create()
        self._start_runtime()
        self.add_images(images)

    def processes(self, pod_uid: str) -> list[int]:
        """All processes of a pod, by their ids on this machine; none when it has ended."""
        groups = cgroups.unified().glob(f"{self._group.name}/kubepods/**/pod{pod_uid}/**/cgroup.procs")
        return sorted(int(line) for group in groups for line in group.read_text().split())

    def add_images(self, images: Sequence[Image]) -> None:
        """Give the node images, as if it had pulled them: pods must not ask for `imagePullPolicy: Always`."""
        file = self._folder / "images.tar"
        write_archive(file, images, self._packages / "bin" / "busybox")
        self._ctr("images", "import", str(file))
        file.unlink()

    def set_gpus(self, hardware: devices.Hardware | None) -> None:
        """Make these the node's GPUs; None when their driver is missing.

        A device plugin must run on the node: a DaemonSet with an image of `devices.plugin_image`.
        """
        folder = self._folder / "kubelet"
        if hardware is None:
            devices.remove(folder)
        else:
            devices.write(folder, hardware)

    def check(self) -> None:
        """Raise ComponentFailed if one of the programs has ended."""
        for component in self.components:
            component.check()

    def stop(self) -> None:
        """End the node and all its pods, and remove what it kept. Does nothing when it is stopped."""
        self._end_programs()
        for relay in self._relays:
            relay.close()
        self._relays.clear()
        self.namespaces.close()
        remove_when_unused(self._folder, REMOVE_SECONDS)

    def _end_programs(self) -> None:
        for component in reversed(self.components):
            component.kill()
        for component in self.components:
            component.wait()
        self.components.clear()
        self._group.end()

    def _publish(self, port: int) -> None:
        try:
            self._relays.append(Relay(port, self.namespaces.pid))
        except OSError as error:
            raise ComponentFailed(f"port {port} of the node cannot be had here: {error}") from error

    def _start_runtime(self) -> None:
        cni = self._folder / "pods.conflist"
        cni.write_text(configuration.cni())
        self.namespaces.run(["mkdir", "-p", configuration.CNI_CONFIGURATION])
        self.namespaces.run(["cp", str(cni), configuration.CNI_CONFIGURATION])
        settings = self._folder / "containerd.toml"
        settings.write_text(configuration.containerd(self._packages))
        executable = self._packages / "usr" / "bin" / "containerd"
        runtime = self._spawn("containerd", [str(executable), "--config", str(settings)])
        deadline = time.monotonic() + START_SECONDS
        while True:
            runtime.check()
            try:
                self._ctr("version")
            except (ComponentFailed, subprocess.TimeoutExpired) as error:
                if time.monotonic() > deadline:
                    raise runtime.failure(f"did not answer in {START_SECONDS:.0f} s ({error})") from error
                time.sleep(POLL_SECONDS)
            else:
                return

    def _start_kubelet(self, control_plane: ControlPlane) -> None:
        resolver = self._folder / "resolv.conf"
        resolver.write_text(f"nameserver {configuration.DNS_ADDRESS}\n")
        settings = self._folder / "kubelet.json"
        settings.write_text(configuration.kubelet(self._group.name, resolver, self._taints))
        flags = [
            f"--config={settings}",
            f"--kubeconfig={control_plane.kubeconfig_of(self.user)}",
            f"--hostname-override={self.name}",
            f"--node-ip={ADDRESS}",
            f"--node-labels={configuration.labels(self._labels)}",
            "--cert-dir=/var/lib/kubelet/pki",
        ]
        self._spawn("kubelet", [str(self._kube), "kubelet", *flags])

    def _wait_until_ready(self, control_plane: ControlPlane) -> None:
        kubernetes = client(control_plane.kubeconfig)
        deadline = time.monotonic() + START_SECONDS
        while not any(is_ready(node) for node in kubernetes.list(Node, fields={"metadata.name": self.name})):
            self.check()
            if time.monotonic() > deadline:
                raise self.components[-1].failure(f"was not Ready in {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _start_network_policies(self, control_plane: ControlPlane) -> None:
        flags = [
            f"--kubeconfig={control_plane.kubeconfig_of(ADMIN)}",
            f"--hostname-override={self.name}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
        ]
        engine = self._spawn("network-policies", [str(self._kube), "network-policies", *flags])
        deadline = time.monotonic() + START_SECONDS
        while not self._has_chain(POLICY_CHAIN):
            engine.check()
            if time.monotonic() > deadline:
                raise engine.failure(f"made no chain {POLICY_CHAIN} in {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _has_chain(self, chain: str) -> bool:
        try:
            self.namespaces.run(["iptables", "-S", chain])
        except ComponentFailed:
            return False
        return True

    def _route_to_api_server(self, port: int) -> None:
        """Stand in for kube-proxy, for the one Service that every cluster has."""
        rule = ["-d", API_SERVICE_ADDRESS, "-p", "tcp", "--dport", "443", "-j", "DNAT"]
        for chain in ("PREROUTING", "OUTPUT"):
            where = ["iptables", "-t", "nat", "-A", chain]
            self.namespaces.run([*where, *rule, "--to-destination", f"{ADDRESS}:{port}"])

    def _spawn(self, name: str, command: Sequence[str]) -> Component:
        component = Component(
            name,
            [*self.namespaces.entering(), *command],
            folder=self._folder,
            logs=self._logs,
            environment=self.namespaces.environment,
        )
        self.components.append(component)
        self._group.add(component.pid)
        return component

    def _ctr(self, *arguments: str) -> str:
        return self.namespaces.run(
            ["ctr", "--address", configuration.CONTAINERD_SOCKET, "--namespace", "k8s.io", *arguments]
        )


def is_ready(node: Node) -> bool:
    """Whether its kubelet says that it is."""
    conditions = (node.status and node.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
