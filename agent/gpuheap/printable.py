# SPDX-License-Identifier: Apache-2.0
"""Text of other programs, for a terminal or a log that it must not steer."""


def printable(text: str) -> str:
    """As it is, but for control characters, which are shown by their numbers; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
