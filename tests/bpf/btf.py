# SPDX-License-Identifier: Apache-2.0
"""The types in a BPF object's .BTF section, as far as tests ask: structs, arrays and sizes.

The format is the kernel's: https://docs.kernel.org/bpf/btf.html.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, ENUM64 = (
    *(1, 2, 3, 4, 5, 6),
    *(13, 14, 15, 16, 17, 19),
)
MODIFIERS = (8, 9, 10, 11, 18)  # typedef, volatile, const, restrict, type tag
POINTER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """`size` is in bytes, or the type that a modifier is about. `members`: name, type, bit offset."""

    kind: int
    name: str
    size: int
    members: tuple[tuple[str, int, int], ...] = ()
    element: tuple[int, int] = (0, 0)
    """Of an array: type and count."""


class Types:
    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            section = ELFFile(stream).get_section_by_name(".BTF")
            assert section is not None, f"{path} has no BTF"
            data = section.data()
        _, _, _, header, types, types_bytes, names, _ = struct.unpack_from("<HBBIIIII", data)
        self._names = data[header + names :]
        self._types = dict(enumerate(self._parsed(data[header + types : header + types + types_bytes]), 1))

    def structs(self, name: str) -> list[Type]:
        return [one for one in self._types.values() if (one.kind, one.name) == (STRUCT, name)]

    def size(self, number: int) -> int:
        """In bytes."""
        one = self._types[number]
        if one.kind in MODIFIERS:
            return self.size(one.size)
        if one.kind == ARRAY:
            element, count = one.element
            return count * self.size(element)
        return POINTER_BYTES if one.kind == PTR else one.size

    def _parsed(self, data: bytes) -> Iterator[Type]:
        at = 0
        while at < len(data):
            name, info, size = struct.unpack_from("<III", data, at)
            at += 12
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            members: list[tuple[str, int, int]] = []
            element = (0, 0)
            if kind in (STRUCT, UNION):
                for place in range(count):
                    label, number, offset = struct.unpack_from("<III", data, at + 12 * place)
                    members.append((self._name(label), number, offset & 0xFFFFFF if info >> 31 else offset))
            elif kind == ARRAY:
                number, _, length = struct.unpack_from("<III", data, at)
                element = (number, length)
            at += _extra_bytes(kind, count)
            yield Type(kind=kind, name=self._name(name), size=size, members=tuple(members), element=element)

    def _name(self, offset: int) -> str:
        return self._names[offset:].split(b"\0", 1)[0].decode()


def _extra_bytes(kind: int, count: int) -> int:
    """What follows the head of a type."""
    each = {STRUCT: 12, UNION: 12, ENUM: 8, ENUM64: 12, FUNC_PROTO: 8, DATASEC: 12}.get(kind, 0)
    return each * count + {INT: 4, ARRAY: 12, VAR: 4, DECL_TAG: 4}.get(kind, 0)
