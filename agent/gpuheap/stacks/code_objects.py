# SPDX-License-Identifier: Apache-2.0
"""Code objects as the kernel side described them, and frames made from them.

Everything was copied while its process ran, so names and lines are there after it has gone.
"""

from dataclasses import dataclass
from typing import Final

from gpuheap.heap.model import Frame

from .line_table import line_of

CUT: Final = "…"
"""Ends a name that was longer than what the kernel side copies."""

_ENCODINGS: Final = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """`lines` is co_linetable, or its beginning."""

    name: str
    file: str
    first_line: int
    lines: bytes

    @property
    def is_trampoline(self) -> bool:
        """CPython 3.13 runs a class's `__init__` below a code object of its own making, `_Py_InitCleanup`."""
        return self.name == self.file == "__init__"

    def frame(self, instruction: int) -> Frame:
        """The frame that executes the instruction at this byte offset."""
        return Frame(
            function=self.name, file=self.file, line=line_of(self.lines, self.first_line, instruction)
        )


def text(data: bytes, length: int, state: int) -> str:
    """A PyUnicode's characters. `length` is in characters; `data` may hold fewer, which the result then shows."""
    width = state >> 2 & 7
    encoding = _ENCODINGS.get(width)
    if encoding is None:
        return ""
    kept = min(length * width, (len(data) - 1) // width * width)
    characters = data[:kept].decode(encoding, errors="replace")
    return characters + CUT if kept < length * width else characters
