# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in set-up."""


class ToolchainError(Exception):
    """The root of this package's errors; the text is meant for the user."""


class NotSetUp(ToolchainError):
    """Something that set-up provides is not there; the text names it and the command that provides it."""


class SetupFailed(ToolchainError):
    """A step of set-up failed; the text holds what failed, its last output, and the log file."""
