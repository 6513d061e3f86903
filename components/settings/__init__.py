# SPDX-License-Identifier: Apache-2.0
"""The parts of a stack's configuration, one file a part: what each key may hold, and why.

A field's description is what a refusal calls "allowed", its first example what the refusal proposes. How the
parts go together, and where they are read from, is in `components/config.py`.
"""
