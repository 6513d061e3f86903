# SPDX-License-Identifier: Apache-2.0
"""Symbols of ELF files, by name. The files belong to other people's processes: anything may be wrong with them."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

MAX_FILE_BYTES: Final = 4 << 30
MAX_SYMBOLS: Final = 200_000
MAX_NAMES_BYTES: Final = 64 << 20
MAX_OBJECT_BYTES: Final = 4 << 20
MAX_RELOCATIONS_BYTES: Final = 64 << 20

_SYMBOL: Final = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_UNDEFINED: Final = 0
_RELOCATION: Final = struct.Struct("<QQq")  # Elf64_Rela: place, info, addend
_R_X86_64_64: Final = 1
_R_X86_64_RELATIVE: Final = 8


class NotUsable(Exception):
    """A file is no ELF file that can be read; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """Where a symbol is: virtual address as linked, offset in the file (None outside the file), size in bytes."""

    address: int
    offset: int | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """What was asked of a file: its dynamic symbols, and bytes at symbols."""

    symbols: dict[str, Symbol]
    contents: dict[str, bytes]
    pointers: dict[int, int]
    """Of the object that was asked about: pointers in it to itself. Place and target, from its beginning."""


def read(
    path: Path,
    wanted: frozenset[str],
    contents: dict[str, int] | None = None,
    pointers_in: str | None = None,
) -> Elf:
    """The exported symbols among `wanted`, and for names in `contents` as many bytes as asked from the file.

    Raises NotUsable.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise NotUsable(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            symbols = _symbols(elf, wanted)
            bytes_at = {
                name: _bytes(stream, symbols[name].offset, count)
                for name, count in (contents or {}).items()
                if name in symbols
            }
            own = symbols.get(pointers_in) if pointers_in else None
            pointers = _pointers(elf, stream, own, pointers_in or "") if own else {}
            return Elf(symbols=symbols, contents=bytes_at, pointers=pointers)
    except OSError as error:
        raise NotUsable(f"{path}: {error.strerror}") from error
    # pyelftools trusts what it reads: a hostile file surfaces as any of these.
    except (
        ELFError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        TypeError,
        MemoryError,
        OverflowError,
        struct.error,
    ) as error:
        raise NotUsable(f"{path} is no readable ELF file: {error!r}") from error


def _symbols(elf: ELFFile, wanted: frozenset[str]) -> dict[str, Symbol]:
    """Without making an object of each symbol: processes do not wait while their libraries are looked at."""
    table = next(elf.iter_sections("SHT_DYNSYM"), None)  # by type: asking by name parses every section
    if not isinstance(table, SymbolTableSection) or table.num_symbols() > MAX_SYMBOLS:
        return {}
    if table["sh_entsize"] != _SYMBOL.size or elf.get_section(table["sh_link"])["sh_size"] > MAX_NAMES_BYTES:
        return {}
    names = elf.get_section(table["sh_link"]).data()
    places = {place: name for name in wanted for place in _places(names, name.encode() + b"\0")}
    found: dict[str, Symbol] = {}
    data = table.data()
    for place, _, _, section, address, size in _SYMBOL.iter_unpack(
        data[: len(data) // _SYMBOL.size * _SYMBOL.size]
    ):
        if place in places and section != _UNDEFINED:
            found.setdefault(places[place], Symbol(address=address, offset=_offset(elf, address), size=size))
    return found


def _pointers(elf: ELFFile, stream: Any, own: Symbol, name: str) -> dict[int, int]:
    """As the file has them, or as relocations will write them: by address, or by this symbol and a distance."""
    begin, end = own.address, own.address + min(own.size, MAX_OBJECT_BYTES)
    data = _bytes(stream, own.offset, end - begin)
    found = {
        8 * place: word - begin
        for place, (word,) in enumerate(struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))
        if begin <= word < end
    }
    for table in elf.iter_sections("SHT_RELA"):
        if table["sh_size"] > MAX_RELOCATIONS_BYTES or table["sh_entsize"] != _RELOCATION.size:
            continue
        relocations = table.data()
        symbols = elf.get_section(table["sh_link"])
        if not isinstance(symbols, SymbolTableSection):
            continue
        for place, info, addend in _RELOCATION.iter_unpack(
            relocations[: len(relocations) // _RELOCATION.size * _RELOCATION.size]
        ):
            if not begin <= place < end:
                continue
            if info & 0xFFFFFFFF == _R_X86_64_RELATIVE:
                found[place - begin] = addend - begin
            elif info & 0xFFFFFFFF == _R_X86_64_64 and symbols.get_symbol(info >> 32).name == name:
                found[place - begin] = addend
    return found


def _places(names: bytes, name: bytes) -> Iterator[int]:
    """Where in a string table a symbol of this name can point: linkers let a name be the end of a longer one."""
    at = names.find(name)
    while at >= 0:
        yield at
        at = names.find(name, at + 1)


def _offset(elf: ELFFile, address: int) -> int | None:
    for segment in elf.iter_segments("PT_LOAD"):
        start = segment["p_vaddr"]
        if start <= address < start + segment["p_filesz"]:
            return int(segment["p_offset"] + address - start)
    return None


def _bytes(stream: Any, offset: int | None, count: int) -> bytes:
    if offset is None:
        return b""
    stream.seek(offset)
    data: bytes = stream.read(count)
    return data
