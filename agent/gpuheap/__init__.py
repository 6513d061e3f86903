# SPDX-License-Identifier: Apache-2.0
"""gpuheap: a heap profiler for GPU memory."""

__version__ = "0.1.0"
