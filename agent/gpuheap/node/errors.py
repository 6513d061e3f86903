# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in recording a command or a process."""


class RecordError(Exception):
    """The text names the command or process, what failed and what to try."""
