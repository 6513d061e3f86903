# SPDX-License-Identifier: Apache-2.0
"""The entries that debug information is made of (DWARF 2 to 5, chapter 7.5): how long they are, and what they hold.

Pure. What is malformed raises one of MISREAD.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

from .dwarf import Malformed, signed_leb, unsigned_leb

MAX_ABBREVIATIONS: Final = 65_536
MAX_ATTRIBUTES: Final = 256
MAX_ABBREVIATION_BYTES: Final = 1 << 20
_ABBREVIATION_BYTES: Final = 4096
_SHAPE_BYTES, _ATTRIBUTE_BYTES = 300, 100
"""About what one takes."""

_ADDRESS_BYTES: Final = 8


class Tag(IntEnum):
    LEXICAL_BLOCK = 0x0B
    COMPILE_UNIT = 0x11
    INLINED = 0x1D
    CATCH_BLOCK = 0x25
    SUBPROGRAM = 0x2E
    TRY_BLOCK = 0x32
    NAMESPACE = 0x39
    PARTIAL_UNIT = 0x3C


class Attribute(IntEnum):
    SIBLING = 0x01
    NAME = 0x03
    STATEMENTS = 0x10
    """DW_AT_stmt_list"""
    LOW = 0x11
    HIGH = 0x12
    FOLDER = 0x1B
    """DW_AT_comp_dir"""
    RANGES = 0x55
    CALL_FILE = 0x58
    CALL_LINE = 0x59
    STRINGS_BASE = 0x72
    ADDRESSES_BASE = 0x73
    RANGES_BASE = 0x74
    GNU_ADDRESSES_BASE = 0x2133


class Form(IntEnum):
    ADDRESS = 0x01
    BLOCK_2 = 0x03
    BLOCK_4 = 0x04
    DATA_2 = 0x05
    DATA_4 = 0x06
    DATA_8 = 0x07
    STRING = 0x08
    BLOCK = 0x09
    BLOCK_1 = 0x0A
    SIGNED = 0x0D
    STRING_AT = 0x0E
    UNSIGNED = 0x0F
    REFERENCE_ADDRESS = 0x10
    REFERENCE_UNSIGNED = 0x15
    INDIRECT = 0x16
    SECTION_OFFSET = 0x17
    EXPRESSION = 0x18
    STRING_INDEX = 0x1A
    ADDRESS_INDEX = 0x1B
    SUPPLEMENTARY_STRING = 0x1D
    LINE_STRING_AT = 0x1F
    IMPLICIT = 0x21
    LISTS_INDEX = 0x22
    RANGES_INDEX = 0x23
    STRING_INDEX_1 = 0x25
    STRING_INDEX_4 = 0x28
    ADDRESS_INDEX_1 = 0x29
    ADDRESS_INDEX_4 = 0x2C
    GNU_ADDRESS_INDEX = 0x1F01
    GNU_STRING_INDEX = 0x1F02
    GNU_REFERENCE = 0x1F20
    GNU_STRING = 0x1F21


_FIXED: Final = {
    **dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1),
    **dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2),
    **dict.fromkeys((0x27, 0x2B), 3),
    **dict.fromkeys((0x06, 0x13, 0x1C, 0x28, 0x2C), 4),
    **dict.fromkeys((0x07, 0x14, 0x20, 0x24), 8),
    0x1E: 16,
    0x19: 0,
}
"""Bytes of the forms that are the same in all units; of most a number, little-endian. 0x19 stands for itself."""

_OFFSETS: Final = frozenset({0x0E, 0x17, 0x1D, 0x1F, 0x1F20, 0x1F21})
_UNSIGNED: Final = frozenset({0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02})
_IMPLICIT: Final = int(Form.IMPLICIT)
_SIBLING, _LOW, _RANGES = int(Attribute.SIBLING), int(Attribute.LOW), int(Attribute.RANGES)
_BLOCKS: Final = {0x0A: 1, 0x03: 2, 0x04: 4}
"""By the bytes of their length."""

Value = tuple[int, int | bytes]
"""A form, and what it holds: a number, or bytes where it is a string or a block."""


class Layout(NamedTuple):
    """What the length of some forms depends on."""

    version: int
    offset_bytes: int
    """4 or 8"""

    @property
    def sizes(self) -> Mapping[int, int]:
        """The bytes of each form whose values are all of one length."""
        return _sizes(self.version < 3, self.offset_bytes)


@cache
def _sizes(references_are_addresses: bool, offset_bytes: int) -> Mapping[int, int]:
    reference = _ADDRESS_BYTES if references_are_addresses else offset_bytes
    return {
        **_FIXED,
        **dict.fromkeys(_OFFSETS, offset_bytes),
        int(Form.ADDRESS): _ADDRESS_BYTES,
        int(Form.REFERENCE_ADDRESS): reference,
        int(Form.IMPLICIT): 0,
    }


class Abbreviation(NamedTuple):
    """What entries of one shape have."""

    tag: int
    has_children: bool
    attributes: tuple[tuple[int, int, int, int], ...]
    """Attribute, form, the value where the form has it here, and bytes; negative where they differ."""
    size: int
    """Of all attributes; negative where it differs."""
    has_code: bool
    has_sibling: bool


class Abbreviations:
    """Of one unit, read as far as anybody asks. Units that share them each have their own."""

    def __init__(self, read: Callable[[int], bytes], layout: Layout) -> None:
        """`read` gives so many bytes of what describes the unit's entries, or all if there are fewer."""
        self._read_bytes = read
        self._data = b""
        self._fixed = layout.sizes
        self._place = 0
        self._known: dict[int, Abbreviation] = {}
        self._attributes = 0

    @property
    def kept_bytes(self) -> int:
        """About how much memory is in use for them."""
        return len(self._data) + len(self._known) * _SHAPE_BYTES + self._attributes * _ATTRIBUTE_BYTES

    def get(self, code: int) -> Abbreviation:
        found = self._known.get(code)
        while found is None:
            try:
                self._read()
            except IndexError:
                self._read_more()
            found = self._known.get(code)
        return found

    def _read_more(self) -> None:
        size = len(self._data)
        if size < MAX_ABBREVIATION_BYTES:
            self._data = self._read_bytes(max(_ABBREVIATION_BYTES, 4 * size))
        if len(self._data) <= size:
            raise Malformed("what describes the entries has no end")

    def _read(self) -> None:
        """The next one."""
        data, place = self._data, self._place
        code, place = unsigned_leb(data, place)
        if not code or len(self._known) >= MAX_ABBREVIATIONS:
            raise Malformed("an entry has a shape that is not described")
        tag, place = unsigned_leb(data, place)
        has_children = bool(data[place])
        place += 1
        attributes: list[tuple[int, int, int, int]] = []
        names, whole, fixed = set(), 0, self._fixed
        while True:
            attribute, form, implicit = data[place], data[place + 1], 0
            place += 2
            if attribute >= 0x80 or form >= 0x80:
                attribute, place = unsigned_leb(data, place - 2)
                form, place = unsigned_leb(data, place)
            if form == _IMPLICIT:
                implicit, place = signed_leb(data, place)
            elif not form and not attribute:
                break
            size = fixed.get(form, -1)
            whole = whole + size if size >= 0 and whole >= 0 else -1
            names.add(attribute)
            attributes.append((attribute, form, implicit, size))
            if len(attributes) > MAX_ATTRIBUTES:
                raise Malformed(f"entries with more than {MAX_ATTRIBUTES} attributes")
        self._place = place
        self._attributes += len(attributes)
        self._known[code] = Abbreviation(
            *(tag, has_children, tuple(attributes), whole),
            has_code=_LOW in names or _RANGES in names,
            has_sibling=has_children and _SIBLING in names,
        )


def read(
    data: bytes, place: int, shape: Abbreviation, layout: Layout, wanted: Collection[int]
) -> tuple[dict[int, Value], int]:
    """The wanted attributes of an entry whose attributes begin at this place, and the place behind all of them."""
    found: dict[int, Value] = {}
    for attribute, form, implicit, size in shape.attributes:
        if attribute in wanted:
            found[attribute], place = value(data, place, form, layout, implicit)
        elif size >= 0:
            place += size
        else:
            place = _behind(data, place, form, layout)
    return found, place


def skip(data: bytes, place: int, shape: Abbreviation, layout: Layout) -> int:
    """The place behind the entry's attributes."""
    return place + shape.size if shape.size >= 0 else read(data, place, shape, layout, ())[1]


def value(data: bytes, place: int, form: int, layout: Layout, implicit: int = 0) -> tuple[Value, int]:
    """The value at this place, and the place behind it."""
    if form == Form.IMPLICIT:
        return (form, implicit), place
    size = layout.sizes.get(form)
    if size is not None:
        if len(data) < place + size:
            raise Malformed("debug information ends within a value")
        return (form, int.from_bytes(data[place : place + size], "little")), place + size
    if form == Form.INDIRECT:
        form, place = unsigned_leb(data, place)
        if form in (Form.INDIRECT, Form.IMPLICIT):
            raise Malformed("a form that leads to another one leads nowhere")
        return value(data, place, form, layout)
    if form in _UNSIGNED:
        number, place = unsigned_leb(data, place)
        return (form, number), place
    if form == Form.SIGNED:
        number, place = signed_leb(data, place)
        return (form, number), place
    behind = _behind(data, place, form, layout)
    if form == Form.STRING:
        return (form, data[place : behind - 1]), behind
    return (form, data[behind - _block(data, place, form)[0] : behind]), behind


def _behind(data: bytes, place: int, form: int, layout: Layout) -> int:
    """Of a form whose values are not all of one length."""
    if form == Form.STRING:
        end = data.find(b"\0", place)
        if end < 0:
            raise Malformed("a string without an end")
        return end + 1
    if form in _UNSIGNED or form == Form.SIGNED:
        while data[place] >= 0x80:
            place += 1
        return place + 1
    if form == Form.INDIRECT:
        return value(data, place, form, layout)[1]
    size, begin = _block(data, place, form)
    if len(data) < begin + size:
        raise Malformed("debug information ends within a value")
    return begin + size


def _block(data: bytes, place: int, form: int) -> tuple[int, int]:
    """Its length, and where its contents begin."""
    if form in (Form.BLOCK, Form.EXPRESSION):
        return unsigned_leb(data, place)
    size = _BLOCKS.get(form)
    if size is None:
        raise Malformed(f"a value of form {form:#x}")
    if len(data) < place + size:
        raise struct.error("a block's length is cut")
    return int.from_bytes(data[place : place + size], "little"), place + size
