# SPDX-License-Identifier: Apache-2.0
"""A real node of the local cloud: the kubelet, containerd and runc, CNI plugins and a network policy engine.

It runs as root, in mount and network namespaces of its own, and leaves nothing behind: no mount, link, firewall rule,
control group or process. The control plane runs in its network, so that API server and node reach each other.
"""
