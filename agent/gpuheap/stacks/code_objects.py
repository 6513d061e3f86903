# SPDX-License-Identifier: Apache-2.0
"""Code objects as the kernel side described them, and frames made from them.

Everything was copied while its process ran, so names and lines are there after it has gone.
"""

import sys
from dataclasses import dataclass, field
from typing import Final

from gpuheap.heap.model import Frame

from .line_table import line_of

CUT: Final = "…"
"""Stands where a name that was longer than what the kernel side copies is cut."""

_WIDTHS: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """`lines` is its line table, or the beginning of that; `lines_format` says what is in it (`LinesFormat`)."""

    name: str
    file: str
    first_line: int
    lines: bytes
    lines_format: int
    _frames: dict[int, Frame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_trampoline(self) -> bool:
        """CPython 3.13 runs a class's `__init__` below a code object of its own making, `_Py_InitCleanup`."""
        return self.name == self.file == "__init__"

    def frame(self, instruction: int) -> Frame:
        """The frame that executes the instruction at this byte offset: one object for all stacks that it is on."""
        known = self._frames.get(instruction)
        if known is None:
            line = line_of(self.lines, self.first_line, instruction, self.lines_format)
            known = self._frames[instruction] = Frame(function=self.name, file=self.file, line=line)
        return known


def text(data: bytes, length: int, width: int, *, last: bool = False) -> str:
    """A PyUnicode's characters, each `width` bytes of `data`. Empty when there is no such width.

    `length` is in characters; `data` may hold fewer, the first ones or the `last` ones, which the result then shows.
    """
    if width not in _WIDTHS:
        return ""
    kept = min(length, (len(data) - 1) // width)
    points = (int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(kept))
    characters = "".join(_character(point) for point in points)
    if kept == length:
        return characters
    return CUT + characters if last else characters + CUT


def _character(point: int) -> str:
    """Paths that are no UTF-8 hold their odd bytes as surrogates (PEP 383): they are shown as Python writes bytes."""
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if 0xD800 <= point <= 0xDFFF:
        return f"\\u{point:04x}"
    return chr(point) if point <= sys.maxunicode else "\ufffd"
