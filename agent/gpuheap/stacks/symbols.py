# SPDX-License-Identifier: Apache-2.0
"""Names for addresses in native code: the function where any symbol table of the file has one, else `library+0xoffset`;
and its source file and line, where there is debug information.

A name does not depend on where things happened to be loaded, so two runs can be compared.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple
from weakref import ref

from .debug_files import embedded, separate
from .debug_sections import Allowance
from .demangler import Demangler
from .elf_image import ElfImage
from .mapped_files import MappedFile
from .memory_map import MemoryMap, NoFile, Region
from .source_lines import Line, SourceLines, lines_of
from .symbol_tables import Found, SymbolTable, table_in

MAX_INDEX_BYTES: Final = 32 << 20
"""Of all files together; then the one that was not asked for longest is indexed anew when it is needed again."""

MAX_NAMES_BYTES: Final = 4 << 20
"""Of one file; then its names are read again."""

MAX_HOSTILE_NAMES: Final = 3
"""Of one file, on which the demangler failed: then its names are shown as they are."""

_NAME_BYTES: Final = 256
"""About what a name takes besides its text."""

NO_FILE: Final = "[code without a file]"
NO_MAPPING: Final = "[not mapped]"


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a place in the code is called."""

    function: str
    """As in the source; `library+0xoffset` where no symbol is known; in brackets where there is no file."""
    library: str
    """The path of its file as its process sees it; empty if there is none."""
    offset: int
    """From the beginning of the function; without a symbol, the address as linked."""
    named: bool
    """Whether the function has its name."""
    build_id: str = ""
    """Of the file, in hexadecimal digits; empty where it has none."""
    file: str = ""
    """The source file; empty where it is not known."""
    line: int = 0
    """0 where it is not known."""


class _Named(NamedTuple):
    """What is known of an address in a file: empty, and 0, where it is not."""

    begin: int
    """Of the function."""
    function: str
    file: str
    line: int


class _FileSymbols:
    """The tables of one file, each made when those before it have no answer."""

    def __init__(self, file: MappedFile, allowance: Allowance) -> None:
        self._tables: list[SymbolTable] = []
        self._more = _tables(ref(file))
        self._allowance = allowance
        self.hostile_names = 0
        self.names: dict[int, _Named] = {}
        self._names_bytes = 0
        self._file = ref(file)

    @property
    def kept_bytes(self) -> int:
        lines = self.__dict__.get("lines")
        tables = sum(table.kept_bytes for table in self._tables)
        return self._names_bytes + tables + (lines.kept_bytes if lines is not None else 0)

    @cached_property
    def lines(self) -> SourceLines | None:
        file = self._file()
        return lines_of(file, self._allowance) if file is not None else None

    def keep(self, address: int, named: "_Named") -> None:
        self._names_bytes += _NAME_BYTES + len(named.function) + len(named.file)
        if self._names_bytes > MAX_NAMES_BYTES:
            self.names.clear()
            self._names_bytes = 0
        self.names[address] = named

    def find(self, address: int) -> Found | None:
        for table in self._all():
            found = table.find(address)
            if found is not None and found.name:
                return found
        return None

    def _all(self) -> Iterator[SymbolTable]:
        yield from self._tables
        for table in self._more:
            self._tables.append(table)
            yield table


def _tables(file: ref[MappedFile]) -> Iterator[SymbolTable]:
    """From the one with the most to that which is always there. The file stays open no longer for it."""
    looks: tuple[Callable[[MappedFile], ElfImage | None], ...] = (_itself, separate, _embedded)
    for look in looks:
        table = _table(file(), look, ".symtab")
        if table is not None:
            yield table
    exported = _table(file(), _itself, ".dynsym")
    if exported is not None:
        yield exported


def _table(
    file: MappedFile | None, look: Callable[[MappedFile], ElfImage | None], name: str
) -> SymbolTable | None:
    image = look(file) if file is not None and file.image is not None else None
    return table_in(image, name) if image is not None else None


def _itself(file: MappedFile) -> ElfImage | None:
    return file.image


def _embedded(file: MappedFile) -> ElfImage | None:
    return embedded(file.image) if file.image is not None else None


class Symbols:
    """Keeps an index of each file while there is room, and nothing of files that nobody has mapped any more."""

    def __init__(self) -> None:
        self._files: OrderedDict[int, tuple[ref[MappedFile], _FileSymbols]] = OrderedDict()
        self._demangler = Demangler()
        self._allowance = Allowance()
        self.unread_lines = 0
        """Files whose debug information could not be read, or not all of it."""

    def close(self) -> None:
        self._demangler.close()

    def name(self, address: int, memory_map: MemoryMap) -> Symbol:
        """Of the function that holds the address of an instruction or, for a frame above another, of its call."""
        region = memory_map.find(address)
        if region is None:
            return Symbol(NO_MAPPING, "", 0, named=False)
        place = region.address_as_linked(address)
        if isinstance(region.file, NoFile) or place is None:
            return _without_symbols(region, address)
        return self.name_in(region.file, region.path, place)

    def name_in(self, file: MappedFile, path: str, place: int) -> Symbol:
        """The same for an address as linked, in a file with this path."""
        found = self._named(file, place)
        build_id = file.image.build_id.hex() if file.image is not None else ""
        return Symbol(
            found.function or f"{_base(path)}+{place:#x}",
            path,
            place - found.begin,
            named=bool(found.function),
            build_id=build_id,
            file=found.file,
            line=found.line,
        )

    def _named(self, file: MappedFile, place: int) -> _Named:
        symbols = self._symbols(file)
        known = symbols.names.get(place)
        if known is not None:
            return known
        found, line = symbols.find(place), self._line(symbols, place)
        named = _Named(
            found.address if found is not None else 0,
            self._readable(symbols, _text(found.name)) if found is not None else "",
            _text(line.file) if line is not None else "",
            line.number if line is not None else 0,
        )
        symbols.keep(place, named)
        self._make_room(id(file))
        return named

    def _line(self, symbols: _FileSymbols, place: int) -> Line | None:
        if symbols.lines is None:
            return None
        before = symbols.lines.is_unread
        found = symbols.lines.find(place)
        self.unread_lines += symbols.lines.is_unread and not before
        return found

    def _readable(self, symbols: _FileSymbols, name: str) -> str:
        if symbols.hostile_names >= MAX_HOSTILE_NAMES:
            return name
        before = self._demangler.failures
        readable = self._demangler.readable(name)
        symbols.hostile_names += self._demangler.failures - before
        return readable

    def _symbols(self, file: MappedFile) -> _FileSymbols:
        kept = self._files.get(id(file))
        if kept is None or kept[0]() is not file:  # an id is given again when its owner is gone
            kept = self._files[id(file)] = ref(file), _FileSymbols(file, self._allowance)
        self._files.move_to_end(id(file))
        return kept[1]

    def _make_room(self, for_file: int) -> None:
        for key in [key for key, (file, _) in self._files.items() if file() is None]:
            del self._files[key]
        kept = {key: symbols.kept_bytes for key, (_, symbols) in self._files.items()}
        total = sum(kept.values())
        for key, size in kept.items():
            if total <= MAX_INDEX_BYTES or key == for_file:
                return
            del self._files[key]
            total -= size


def _without_symbols(region: Region, address: int) -> Symbol:
    if region.path.startswith("/"):
        offset = address - region.begin + region.offset
        return Symbol(f"{_base(region.path)}+{offset:#x}", region.path, offset, named=False)
    return Symbol(region.path if region.path.startswith("[") else NO_FILE, "", 0, named=False)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _text(name: bytes) -> str:
    """Without what a terminal or a page would take for more than text."""
    text = name.decode(errors="replace")
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)
