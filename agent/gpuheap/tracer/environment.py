# SPDX-License-Identifier: Apache-2.0
"""Which CUDA and NVIDIA variables a process has now, which need not be those that it was started with.

/proc/PID/environ shows the strings of the program's start for ever; setenv, and Python's os.environ, put theirs
elsewhere. What getenv sees hangs on the C library's variable `environ`, so that is read, in the process's memory. Other
variables are nobody's business here: they are not kept, nor read beyond their first letters.
"""

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import NotUsable, read

from .mappings import FileId, Mapping, mappings
from .process_memory import read_memory

PREFIXES: Final = (b"CUDA_", b"NVIDIA_VISIBLE_")
VARIABLES: Final = ("__environ", "environ", "_environ")
"""One variable under several names: the library's own first, that which getenv uses."""
LIBRARY: Final = re.compile(r"(libc\.so\.6|libc-2\.\d+\.so|ld-musl-[\w-]+\.so\.1|libc\.so)", re.ASCII)
LOADER: Final = "ld-"

MAX_VARIABLES: Final = 8192
MAX_VARIABLE_BYTES: Final = 16 << 10
MAX_KEPT: Final = 256
MAX_START_BYTES: Final = 4 << 20
"""Of /proc/PID/environ. The kernel bounds what a program is started with, by default at 2 MiB."""

_MAX_FILES: Final = 4096
_MAX_SEGMENTS: Final = 64
_ATTEMPTS: Final = 3
_WORD_BYTES: Final = 8
_PAGE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<32xQ14xHH6x")  # Elf64_Ehdr: phoff, phentsize, phnum
_SEGMENT: Final = struct.Struct("<I4xQQ32x")  # Elf64_Phdr: type, offset, vaddr
_LOADED: Final = 1

_distances: Final[dict[FileId, int | None]] = {}
"""From where a file's start is mapped to the variable; None for a file that has none."""


class _Unreadable(Exception):
    """The process's memory does not hold what it should: it is gone, or another thread is at it."""


def environment_of(pid: int) -> dict[str, str]:
    """The variables named CUDA_… and NVIDIA_… of a process as its getenv sees them; none when it is gone.

    Where the C library cannot be read (a program without a dynamic one, memory that may not be looked at), those that
    the program was started with.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _kept(_current(pid))
        except _Unreadable:
            continue
    return _kept(_at_start(pid))


def _current(pid: int) -> list[bytes]:
    """The wanted strings that `environ` leads to. Raises _Unreadable."""
    variable, certain = _variable(pid)
    array = _array(pid, variable)
    if not array and not certain:
        raise _Unreadable
    found: list[bytes] = []
    for address in array:
        # The prefix alone first: most variables are others.
        if read_memory(pid, address, max(map(len, PREFIXES))).startswith(PREFIXES) and len(found) < MAX_KEPT:
            text, end, _ = read_memory(pid, address, MAX_VARIABLE_BYTES).partition(b"\0")
            found.append(text if end else b"")
    if _array(pid, variable) != array:
        raise _Unreadable
    return found


def _array(pid: int, variable: int) -> tuple[int, ...]:
    """The addresses of all strings; none after clearenv."""
    pointer = read_memory(pid, variable, _WORD_BYTES)
    if len(pointer) != _WORD_BYTES:
        raise _Unreadable
    start = int.from_bytes(pointer, "little")
    if start == 0:
        return ()
    data = read_memory(pid, start, (MAX_VARIABLES + 1) * _WORD_BYTES)
    words = struct.unpack(f"<{len(data) // _WORD_BYTES}Q", data[: len(data) // _WORD_BYTES * _WORD_BYTES])
    if 0 not in words:
        raise _Unreadable
    return words[: words.index(0)]


def _variable(pid: int) -> tuple[int, bool]:
    """Where `environ` is, and whether that is certain also when it is null. Raises _Unreadable.

    A program that was linked to use the variable directly has it as a copy of its own, and then the library uses that
    one too (a copy relocation): so the program comes first. One that was started by naming the loader is not told from
    other files; then the library's variable is right if anyone set it.
    """
    starts = [mapping for mapping in mappings(pid) if mapping.offset == 0]
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
    except OSError as error:
        raise _Unreadable from error
    libraries = [mapping for mapping in starts if LIBRARY.fullmatch(mapping.path.rpartition("/")[2])]
    for mapping in [*(mapping for mapping in starts if mapping.path == program), *libraries]:
        distance = _distance(pid, mapping)
        if distance is not None:
            return mapping.start + distance, not program.rpartition("/")[2].startswith(LOADER)
    raise _Unreadable


def _distance(pid: int, mapping: Mapping) -> int | None:
    """From the file's start to the variable; None if it has none. Raises _Unreadable when it cannot be opened."""
    if mapping.file in _distances:
        return _distances[mapping.file]
    try:
        with mapping.opened(pid) as path:
            found = _distance_in(path)
    except OSError as error:  # says nothing about the file: it is not remembered
        raise _Unreadable from error
    if len(_distances) >= _MAX_FILES:
        _distances.clear()
    _distances[mapping.file] = found
    return found


def _distance_in(path: Path) -> int | None:
    try:
        symbols = read(path, frozenset(VARIABLES)).symbols
    except NotUsable:
        return None
    variable = next((symbols[name] for name in VARIABLES if name in symbols), None)
    base = _first_address(path) if variable else None
    return None if variable is None or base is None else variable.address - base


def _first_address(path: Path) -> int | None:
    """The linked address of the file's first byte; None if it is not loaded."""
    with path.open("rb") as stream:
        header = stream.read(_HEADER.size)
        if len(header) != _HEADER.size:
            return None
        offset, size, count = _HEADER.unpack(header)
        if size != _SEGMENT.size or count > _MAX_SEGMENTS or offset >= 1 << 32:
            return None
        stream.seek(offset)
        table = stream.read(size * count)
    for kind, start, address in _SEGMENT.iter_unpack(table[: len(table) // size * size]):
        if kind == _LOADED and start < _PAGE_BYTES:
            return int(address - start)
    return None


def _at_start(pid: int) -> list[bytes]:
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as stream:
            return stream.read(MAX_START_BYTES).split(b"\0")
    except OSError:
        return []


def _kept(strings: Iterable[bytes]) -> dict[str, str]:
    """By name. Of a name that is there twice the first counts, as for getenv."""
    found: dict[str, str] = {}
    for string in strings:
        name, equals, value = string.partition(b"=")
        if equals and name.startswith(PREFIXES) and len(found) < MAX_KEPT:
            found.setdefault(name.decode(errors="replace"), value.decode(errors="replace"))
    return found
