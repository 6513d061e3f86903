# SPDX-License-Identifier: Apache-2.0
"""The only code that talks to the kernel: loads the BPF object, sets the probes, reads the maps."""

from .errors import AttachError, LoadError, TracerError, TracerUnavailable
from .tracer import Tracer, TracerOptions

__all__ = ["AttachError", "LoadError", "Tracer", "TracerError", "TracerOptions", "TracerUnavailable"]
