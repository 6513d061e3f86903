# SPDX-License-Identifier: Apache-2.0
"""Whether a real node can run on this machine."""

import os
import shutil
import subprocess

from localcloud.node.cgroups import unified
from localcloud.toolchain import node_packages

PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}


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
    if refusal := _namespace_refusal():
        return f"a real node needs mount and network namespaces: {refusal}"
    return None


def _namespace_refusal() -> str | None:
    command = ["unshare", "--mount", "--net", "true"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stderr.strip() if done.returncode else None
