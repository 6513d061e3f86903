# SPDX-License-Identifier: Apache-2.0
"""A Pulumi policy pack: the rules of placement and the stack's own invariants, told at preview.

The rules are plain functions from a resource's inputs to texts (`placement.py`, `stack.py`); `__main__.py`
alone knows the engine.
"""
