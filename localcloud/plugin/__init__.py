# SPDX-License-Identifier: Apache-2.0
"""Plugins of the Pulumi engine, in Python: stand-ins for those that a machine does not have.

Owns how a plugin is served and how property values travel. The simulated Azure is in `localcloud.azure`.
"""
