# SPDX-License-Identifier: Apache-2.0
"""The encodings that unwind information is made of: LEB128 numbers and pointers. What is malformed raises Malformed."""

import struct
from typing import Final

MAX_LEB_BYTES: Final = 10
_MASK: Final = (1 << 64) - 1

# Pointer encodings of .eh_frame (Linux Standard Base, "DWARF Exception Header Encoding").
OMIT: Final = 0xFF
INDIRECT: Final = 0x80
PC_RELATIVE: Final = 0x10
DATA_RELATIVE: Final = 0x30
ALIGNED: Final = 0x50
_FIXED: Final = {
    0x00: struct.Struct("<Q"),
    0x02: struct.Struct("<H"),
    0x03: struct.Struct("<I"),
    0x04: struct.Struct("<Q"),
    0x08: struct.Struct("<q"),
    0x0A: struct.Struct("<h"),
    0x0B: struct.Struct("<i"),
    0x0C: struct.Struct("<q"),
}


class Malformed(Exception):
    """Unwind information breaks its own rules, or the bounds that are set here."""


MISREAD: Final = (Malformed, IndexError, struct.error)
"""What reading malformed data raises: readers need not check each length, their callers catch these."""


def unsigned_leb(data: bytes, place: int) -> tuple[int, int]:
    """The number, and the place behind it."""
    result = shift = 0
    for at in range(place, place + MAX_LEB_BYTES):
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, at + 1
        shift += 7
    raise Malformed("a LEB128 number is longer than 64 bits need")


def signed_leb(data: bytes, place: int) -> tuple[int, int]:
    """The number, and the place behind it."""
    result = shift = 0
    for at in range(place, place + MAX_LEB_BYTES):
        byte = data[at]
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if byte & 0x40:
                result -= 1 << shift
            return result, at + 1
    raise Malformed("a LEB128 number is longer than 64 bits need")


def pointer(data: bytes, place: int, encoding: int, address: int = 0, base: int = 0) -> tuple[int, int]:
    """A pointer at `place`, which is at `address` in memory, and the place behind it.

    `base` is what pointers that count from the data begin at. One that leads to where the pointer stands (INDIRECT)
    is returned as the address of that.
    """
    form = encoding & 0x0F
    if form == 1:
        value, behind = unsigned_leb(data, place)
    elif form == 9:
        value, behind = signed_leb(data, place)
    elif form in _FIXED:
        value, behind = _FIXED[form].unpack_from(data, place)[0], place + _FIXED[form].size
    else:
        raise Malformed(f"pointer encoding {encoding:#x}")
    relative = encoding & 0x70
    if relative == PC_RELATIVE:
        value += address
    elif relative == DATA_RELATIVE:
        value += base
    elif relative:
        raise Malformed(f"pointer encoding {encoding:#x}")
    return value & _MASK, behind
