# SPDX-License-Identifier: Apache-2.0
"""Whether a real node can run on this machine."""

import os
import shutil
import subprocess
from typing import Final

from localcloud.node.cgroups import unified
from localcloud.node.namespaces import environment
from localcloud.toolchain import node_packages

TRIAL: Final = """
mount -t tmpfs tmpfs /run
mkdir /run/upper /run/work
mount -t overlay -o lowerdir=/var,upperdir=/run/upper,workdir=/run/work overlay /var
ip link add trial0 type bridge
ip link add trial1 type veth peer name trial2
ipset create trial hash:ip
iptables -A FORWARD -m physdev --physdev-is-bridged -m set --match-set trial src -j REJECT
iptables -t nat -A PREROUTING -p tcp --dport 1 -j DNAT --to-destination 127.0.0.1:2
"""
PROGRAMS: Final = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}


def lacks() -> str | None:
    """What is missing, with what to do about it; None if a node can run."""
    if os.geteuid() != 0:
        return "a real node needs root: it makes namespaces, mounts and control groups of its own"
    if reason := node_packages.lacks():
        return f"a real node needs packages: {reason}"
    if not node_packages.folder().exists():
        return "a real node needs containerd and runc: `make setup` fetches them"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"a real node needs `{program}` (package {package})"
    if not unified().is_dir() or not os.access(unified(), os.W_OK):
        return f"a real node needs control groups of version 2 that can be written: {unified()}"
    if not (unified() / "cgroup.controllers").exists():
        return f"a real node needs control groups of version 2: there are none in {unified()}"
    if refusal := _refusal():
        return (
            f"a real node needs namespaces, overlayfs, bridges, iptables and ipset of the kernel: {refusal}"
        )
    return None


def _refusal() -> str | None:
    """What the kernel says to the kinds of things that a node is made of; they are gone with the command."""
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--propagation", "private", "/bin/sh", "-ec", TRIAL],
        env=environment(node_packages.folder()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stderr.strip().replace("\n", "; ") if done.returncode else None
