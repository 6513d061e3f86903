# SPDX-License-Identifier: Apache-2.0
"""Files that processes have mapped, held open: once each, as long as a memory map has them, and not too many.

An open file stays readable when its process has ended, when it was deleted or replaced, and from outside its mount
namespace. Whoever sits in such a process can have put anything there: what is opened is a regular file or refused.
"""

import ctypes
import os
import resource
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from .dwarf import Malformed
from .elf import NotUsable
from .elf_image import ElfImage, Memory, OpenFile, Source
from .frame_entries import FrameEntries
from .frame_rules import Budget, Rules, rules_at

MAX_KEPT_BYTES: Final = 32 << 20
"""Of rules, for all files together; then all begin anew. A training process needs one or two MiB."""

SHARE_OF_OPEN_FILES: Final = 0.5

_RULES_BYTES: Final = 512
"""About what the rules for one place take, besides expressions."""

_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_IN_ROOT: Final = 0x10

Identity = tuple[int, int, int, int]


class TooManyOpenFiles(Exception):
    """The share of open files that memory maps may hold is used up."""


class Room:
    """What may be kept of several files."""

    def __init__(self, limit: int = MAX_KEPT_BYTES) -> None:
        self._limit = limit
        self._kept = 0
        self._files: WeakSet[MappedFile] = WeakSet()

    def add(self, file: "MappedFile") -> None:
        self._files.add(file)

    def take(self, size: int) -> None:
        """Some bytes more; has all files forget what they keep when there is no room."""
        self._kept += size
        if self._kept > self._limit:
            for file in self._files:
                file.forget()
            self._kept = 0


class MappedFile:
    """One file: its code's unwind rules by address as linked. What its symbols are is symbols.py's."""

    def __init__(
        self,
        source: Source,
        path: str,
        root: OpenFile | None = None,
        room: Room | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.source = source
        self.path = path
        self.identity = identity
        """Of a file that was opened: what no other one has, nor itself once it was written to."""
        self.root = root
        """The root folder of a process that maps it, in which it may have a file with debug information."""
        self._rules: dict[int, Rules | Malformed | None] = {}
        self._room = room or Room()
        self._room.add(self)

    @cached_property
    def image(self) -> ElfImage | None:
        """None if it is no ELF file that can be used."""
        try:
            return ElfImage(self.source)
        except NotUsable:
            return None

    @cached_property
    def _entries(self) -> FrameEntries | None:
        return FrameEntries(self.image) if self.image is not None else None

    def rules(self, address: int, budget: Budget) -> Rules | None:
        """None where the file describes no frame. Raises Malformed, Exhausted."""
        try:
            found = self._rules[address]
        except KeyError:
            found, size = self._found(address, budget)
            self._room.take(size)
            self._rules[address] = found
        if isinstance(found, Malformed):
            raise found
        return found

    def forget(self) -> None:
        """What is kept of it: it can be read again."""
        self._rules.clear()
        self.__dict__.pop("_entries", None)

    def _found(self, address: int, budget: Budget) -> tuple[Rules | Malformed | None, int]:
        """The rules, and about how much more memory is in use for them."""
        entries = self._entries
        if entries is None:
            return None, _RULES_BYTES
        before = entries.kept_bytes
        try:
            entry = entries.at(address)
            found = rules_at(entry, address, budget) if entry is not None else None
        except Malformed as error:
            # Without the traceback, which would keep all that it was raised in.
            return error.with_traceback(None), _RULES_BYTES + max(0, entries.kept_bytes - before)
        expressions = sum(len(rule[3]) for rule in found.others) if found is not None else 0
        expressions += len(found.cfa_expression or b"") if found is not None else 0
        return found, _RULES_BYTES + expressions + max(0, entries.kept_bytes - before)


class MappedFiles:
    """Opens each file once. Share one of these between memory maps: most processes have the same libraries."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit or int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_OF_OPEN_FILES)
        self._files: WeakValueDictionary[Identity, MappedFile] = WeakValueDictionary()
        self._room = Room()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, fd: int, path: str, root: OpenFile | None) -> MappedFile:
        """For a file just opened, which belongs to this from now on. Raises TooManyOpenFiles."""
        source = OpenFile(fd)
        status = os.fstat(fd)
        # A file that was written to in place is another one, as far as its symbols go.
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        found = self._files.get(identity)
        if found is None:
            if len(self._files) >= self._limit:
                raise TooManyOpenFiles(f"{self._limit} mapped files are open: raise the limit of open files")
            found = self._files[identity] = MappedFile(source, path, root, self._room, identity)
        return found


def open_regular(open_it: Callable[[int], int]) -> int:
    """A descriptor of what `open_it` opens with the flags it is given, if that is a regular file. Raises OSError.

    Opening a device or a named pipe can do things; this looks before it opens.
    """
    looked_at = open_it(os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(looked_at).st_mode):
            raise OSError("it is no regular file")
        return os.open(f"/proc/self/fd/{looked_at}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(looked_at)


def open_within(root: int, path: str) -> int:
    """A regular file of another root folder: its links, absolute ones too, lead nowhere else. Raises OSError."""
    return open_regular(lambda flags: _openat2(root, path, flags))


def _openat2(folder: int, path: str, flags: int) -> int:
    """openat2(2), which Python does not have."""
    how = (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(_OPENAT2, folder, os.fsencode(path), how, ctypes.sizeof(how)))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return fd


def own_vdso() -> MappedFile | None:
    """The code that the kernel maps into every process. It is the same in all of them, so our own serves."""
    with suppress(OSError):
        for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n"):
            if line.endswith("[vdso]"):
                begin, end = (int(number, 16) for number in line.split(maxsplit=1)[0].split("-"))
                return MappedFile(Memory(ctypes.string_at(begin, end - begin)), "[vdso]")
    return None
