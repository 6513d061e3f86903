# SPDX-License-Identifier: Apache-2.0
"""The vendors' device plugins: the DaemonSets that offer a node's GPUs to the kubelet as resources.

Owns the pods' rights and settings. Which resources come of it, the plugins decide: `gpu_vendors.py` has the names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from .gpu_vendors import AMD, NVIDIA, GpuVendor, Taint

Strategy = Literal["none", "single", "mixed"]
"""How a GPU that is cut is offered: not, under the name of whole devices, or under a name for each kind of slice."""

NAMESPACE: Final = "gpu-device-plugins"
SOCKETS: Final = "/var/lib/kubelet/device-plugins"
"""Where the kubelet and its plugins meet: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins"""

# For reference: https://github.com/NVIDIA/k8s-device-plugin/tags, https://hub.docker.com/r/rocm/k8s-device-plugin
NVIDIA_IMAGE: Final = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
AMD_IMAGE: Final = (
    "docker.io/rocm/k8s-device-plugin:1.31.0.10"
    "@sha256:0555caf9ccc1cf407b353d1aade87d4598059f87a784085aafe3ece19405b612"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes of some pools: those whose label has one of the values."""

    label: str
    values: tuple[str, ...]

    def affinity(self) -> core.AffinityArgs:
        return core.AffinityArgs(
            node_affinity=core.NodeAffinityArgs(
                required_during_scheduling_ignored_during_execution=core.NodeSelectorArgs(
                    node_selector_terms=[
                        core.NodeSelectorTermArgs(
                            match_expressions=[
                                core.NodeSelectorRequirementArgs(
                                    key=self.label, operator="In", values=list(self.values)
                                )
                            ]
                        )
                    ]
                )
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlugin:
    """One DaemonSet: the plugin of a vendor with one strategy."""

    vendor: GpuVendor
    strategy: Strategy
    image: str
    nodes: Nodes
    taints: tuple[Taint, ...]
    """All that keeps ordinary pods off these nodes."""

    @property
    def name(self) -> str:
        return f"{self.vendor.name}-device-plugin" + ("" if self.strategy == "none" else f"-{self.strategy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginsArgs:
    plugins: Sequence[DevicePlugin]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]


class DevicePlugins(pulumi.ComponentResource):
    """A namespace with the plugins that the pools need."""

    daemon_sets: Mapping[str, kubernetes.apps.v1.DaemonSet]
    """By the name of the plugin."""

    def __init__(
        self, name: str, args: DevicePluginsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:DevicePlugins", name, {}, opts)
        namespace = core.Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(
                name=NAMESPACE,
                # The plugins use a directory of the node.
                labels={"pod-security.kubernetes.io/enforce": "privileged"},
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        self.daemon_sets = {
            plugin.name: self._daemon_set(name, args, plugin, namespace) for plugin in args.plugins
        }
        self.register_outputs({"plugins": [f"{NAMESPACE}/{plugin.name}" for plugin in args.plugins]})

    def _daemon_set(
        self, name: str, args: DevicePluginsArgs, plugin: DevicePlugin, namespace: core.Namespace
    ) -> kubernetes.apps.v1.DaemonSet:
        labels = {"app.kubernetes.io/name": plugin.name, "app.kubernetes.io/part-of": "gpuheap"}
        return kubernetes.apps.v1.DaemonSet(
            f"{name}-{plugin.name}",
            metadata=ObjectMetaArgs(name=plugin.name, namespace=NAMESPACE, labels=labels),
            spec=kubernetes.apps.v1.DaemonSetSpecArgs(
                selector=LabelSelectorArgs(match_labels=labels),
                template=core.PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels=labels), spec=pod_spec(plugin)
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[namespace]),
        )


def pod_spec(plugin: DevicePlugin) -> core.PodSpecArgs:
    container, volumes = _CONTAINERS[plugin.vendor](plugin)
    return core.PodSpecArgs(
        # Without the plugin the node's GPUs are lost to everybody else.
        priority_class_name="system-node-critical",
        automount_service_account_token=False,
        affinity=plugin.nodes.affinity(),
        tolerations=[tolerated(taint) for taint in plugin.taints],
        containers=[container],
        volumes=volumes,
    )


def tolerated(taint: Taint) -> core.TolerationArgs:
    """Whatever the taint's value."""
    return core.TolerationArgs(key=taint.key, operator="Exists", effect=taint.effect)


def _nvidia(plugin: DevicePlugin) -> tuple[core.ContainerArgs, list[core.VolumeArgs]]:
    slices = plugin.strategy != "none"
    return core.ContainerArgs(
        name="plugin",
        image=plugin.image,
        env=[
            core.EnvVarArgs(name="MIG_STRATEGY", value=plugin.strategy),
            # On a node without a driver it would end and start again for ever; the readiness check says what is wrong.
            core.EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false"),
            *([core.EnvVarArgs(name="NVIDIA_MIG_MONITOR_DEVICES", value="all")] if slices else []),
        ],
        resources=_RESOURCES,
        # To see all slices the plugin needs the right to watch the MIG devices of the node.
        security_context=_security(add=["SYS_ADMIN"] if slices else []),
        volume_mounts=[core.VolumeMountArgs(name="sockets", mount_path=SOCKETS)],
    ), [_host_path("sockets", SOCKETS)]


def _amd(plugin: DevicePlugin) -> tuple[core.ContainerArgs, list[core.VolumeArgs]]:
    naming = "mixed" if plugin.strategy == "mixed" else "single"
    return core.ContainerArgs(
        name="plugin",
        image=plugin.image,
        args=[f"-resource_naming_strategy={naming}"],
        resources=_RESOURCES,
        security_context=_security(add=[]),
        volume_mounts=[
            core.VolumeMountArgs(name="sockets", mount_path=SOCKETS),
            # It finds the GPUs and their topology there.
            core.VolumeMountArgs(name="sys", mount_path="/sys", read_only=True),
        ],
    ), [_host_path("sockets", SOCKETS), _host_path("sys", "/sys")]


def _security(*, add: list[str]) -> core.SecurityContextArgs:
    return core.SecurityContextArgs(
        allow_privilege_escalation=False,
        capabilities=core.CapabilitiesArgs(drop=["ALL"], add=add or None),
        seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
    )


def _host_path(name: str, path: str) -> core.VolumeArgs:
    return core.VolumeArgs(name=name, host_path=core.HostPathVolumeSourceArgs(path=path, type="Directory"))


_RESOURCES: Final[Any] = core.ResourceRequirementsArgs(
    requests={"cpu": "20m", "memory": "64Mi"}, limits={"memory": "256Mi"}
)
_CONTAINERS: Final = {NVIDIA: _nvidia, AMD: _amd}
