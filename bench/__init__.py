# SPDX-License-Identifier: Apache-2.0
"""What the tracer costs the programs it traces, and what the agent costs the machine. `make bench` runs it."""
