# SPDX-License-Identifier: Apache-2.0
"""The configuration files of a node's programs. Values in, text out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from localcloud.node.images import PAUSE
from localcloud.node.namespaces import ADDRESS

CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CNI_CONFIGURATION: Final = "/run/node/cni"
POD_NETWORK: Final = "10.244.255.0/24"
"""The stand-in kubelet counts its pods' addresses up from 10.244.0.1."""

DNS_ADDRESS: Final = "10.96.0.10"


def containerd(packages: Path) -> str:
    """containerd's: what it needs for the kubelet, and nothing more."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri"]

[grpc]
address = "{CONTAINERD_SOCKET}"

[{cri}]
sandbox_image = "{PAUSE}"
# A machine without CAP_SYS_RESOURCE, such as many virtual ones, cannot lower it.
restrict_oom_score_adj = true

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false

[{cri}.cni]
bin_dir = {json.dumps(str(packages / "usr" / "lib" / "cni"))}
conf_dir = "{CNI_CONFIGURATION}"
"""


def cni() -> str:
    """How pods get their network: a bridge, addresses of the node's range, ports of the host."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_NETWORK}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}, indent=1)


def kubelet(control_group: str, resolver: Path, taints: Sequence[str]) -> str:
    """The kubelet's; all pods are in `control_group`."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "healthzBindAddress": "127.0.0.1",
            "readOnlyPort": 0,
            # Nobody but the node and the API server can reach it.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            # The machine may have control groups of version 1, and swap.
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{control_group}",
            "enforceNodeAllocatable": [],
            # The machine is not the node's alone: a full disk is no reason to evict.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(resolver),
            "makeIPTablesUtilChains": False,
            "maxPods": 50,
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "5s",
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            "registerWithTaints": [_taint(text) for text in taints],
        },
        indent=1,
    )


def labels(named: Mapping[str, str]) -> str:
    """The value of the kubelet's `--node-labels`."""
    return ",".join(f"{key}={value}" for key, value in named.items())


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
