# SPDX-License-Identifier: Apache-2.0
"""A cloud on your machine: a real Kubernetes control plane and a simulated Azure."""
