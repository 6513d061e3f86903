# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes cluster without machines: a real control plane, simulated kubelets and cloud controller."""
