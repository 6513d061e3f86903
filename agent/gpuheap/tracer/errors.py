# SPDX-License-Identifier: Apache-2.0
"""Why the kernel side cannot do its work.

TracerError
├── TracerUnavailable   this machine, or this user, cannot trace at all
├── LoadError           the kernel refused the programs
└── AttachError         one probe could not be set
"""


class TracerError(Exception):
    """Each text says what failed, on what, and what to try."""


class TracerUnavailable(TracerError):
    """Rights, a library or a build product are missing."""


class LoadError(TracerError):
    """The kernel refused the object; the text ends with libbpf's log."""


class AttachError(TracerError):
    """A probe could not be set on a file."""
