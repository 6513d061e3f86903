# SPDX-License-Identifier: Apache-2.0
"""A simulated Azure: one store, a Pulumi provider that writes it, and the HTTP endpoints that a program sees.

Owns what Azure would answer. What runs in the cluster is `localcloud.kube`'s. What it cannot tell is in the README.
"""
